// SPDX-License-Identifier: Apache-2.0
// plumb-bench-model: its flags, its table, its JSON. Started by `plumb bench model`.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "machine.hpp"
#include "model_step.hpp"
#include "plumb/kernels/cpu_execution.hpp"
#include "plumb/schedule/error.hpp"
#include "train_lm/launch.hpp"

namespace plumb::bench {
namespace {

constexpr const char* usage_text =
    "usage: plumb bench model [--hidden d] [--layers n] [--block-layers k] [--tokens T] [--dtype fp32|bf16|fp16]\n"
    "                         [--repetitions n] [--json]\n\n"
    "  A training step of the language model with depth attention beside the same layers with an ordinary residual\n"
    "  stream: steps in turn, one thread, processor time, of every segment between two layers the fastest repetition.\n"
    "  Defaults: d=512, 24 decoder layers in blocks of ceil(n/8), one sequence of T=1024 tokens, heads of 64, fp32 "
    "and\n"
    "  bf16, 5 repetitions. Takes a few minutes and 2 GB.\n";

struct Request {
  std::int64_t width = 512;
  std::int64_t layers = 24;
  std::int64_t block_layers = 0;  // 0: ceil(layers / 8)
  std::int64_t tokens = 1024;
  std::int64_t repetitions = 5;
  std::vector<Storage> formats = {Storage::fp32, Storage::bf16};
  bool json = false;
};

lm::LmConfig config_of(const Request& request, Storage dtype) {
  lm::LmConfig config;
  config.num_sublayers = static_cast<int>(2 * request.layers);
  const std::int64_t block = request.block_layers == 0 ? (request.layers + 7) / 8 : request.block_layers;
  config.block_sublayers = static_cast<int>(2 * block);
  config.width = request.width;
  config.heads = std::max<std::int64_t>(1, request.width / 64);
  config.sequence = request.tokens;
  config.sequences = 1;
  config.dtype = dtype;
  return config;
}

double over(double depth, double standard) { return depth / standard - 1; }

void print_row(const char* pass, Storage dtype, double standard, double depth, double between) {
  fmt::print("{:<9} {:<6} {:>12.1f} {:>12.1f} {:>+9.2f} % {:>17.2f} %\n", pass, to_string(dtype), standard * 1e3,
             depth * 1e3, 100 * over(depth, standard), 100 * between / standard);
}

void print_table(Storage dtype, const ModelTimes& times) {
  const auto& [standard, depth] = times;
  const auto row = [dtype](const char* pass, const PassTime& plain, const PassTime& own) {
    print_row(pass, dtype, plain.total(), own.total(), own.between - plain.between);
  };
  row("forward", standard.forward, depth.forward);
  row("backward", standard.backward, depth.backward);
  print_row("update", dtype, standard.update, depth.update, depth.update - standard.update);
  print_row("step", dtype, standard.total(), depth.total(),
            depth.forward.between - standard.forward.between + depth.backward.between - standard.backward.between +
                depth.update - standard.update);
}

nlohmann::ordered_json json_of(const StepTime& time) {
  return {{"forward_us", time.forward.total() * 1e6},
          {"forward_between_layers_us", time.forward.between * 1e6},
          {"backward_us", time.backward.total() * 1e6},
          {"backward_between_layers_us", time.backward.between * 1e6},
          {"update_us", time.update * 1e6},
          {"step_us", time.total() * 1e6}};
}

int run(const std::vector<std::string>& arguments) {
  Request request;
  const auto take = [&](Flag& flag) {
    constexpr std::int64_t most = 65536;
    if (flag.is("--json")) {
      request.json = true;
    } else if (flag.is("--dtype")) {
      const std::string& text = flag.value();
      const auto dtype = lm::storage_from_name(text);
      if (!dtype || *dtype == Storage::fp64) throw flag.not_legal(text, "fp32, bf16, fp16");
      request.formats = {*dtype};
    } else if (flag.is("--hidden")) {
      request.width = flag.number(most);
    } else if (flag.is("--layers")) {
      request.layers = flag.number(most);
    } else if (flag.is("--block-layers")) {
      request.block_layers = flag.number(most);
    } else if (flag.is("--tokens")) {
      request.tokens = flag.number(most);
    } else if (flag.is("--repetitions")) {
      request.repetitions = flag.number(most);
    } else {
      return false;
    }
    return true;
  };
  if (const auto ending = read_flags(arguments, "plumb bench model", usage_text, take)) return *ending;
  lm::set_compute_threads(1);
  const Machine machine = this_machine();
  nlohmann::ordered_json json;
  json["machine"] = {{"processor", machine.processor},
                     {"threads", machine.num_threads},
                     {"compiler", machine.compiler},
                     {"isa", cpu::to_string(cpu::best_isa())}};
  json["results"] = nlohmann::ordered_json::array();
  if (!request.json) {
    fmt::print("{}, {}, {}; d={}, {} decoder layers, T={}, one thread\n\n{:<9} {:<6} {:>12} {:>12} {:>11} {:>19}\n",
               machine.processor, machine.compiler, cpu::to_string(cpu::best_isa()), request.width, request.layers,
               request.tokens, "pass", "dtype", "standard ms", "attnres ms", "overhead", "between layers only");
  }
  for (const Storage dtype : request.formats) {
    const lm::LmConfig config = config_of(request, dtype);
    const ModelTimes times = measure_model(config, static_cast<int>(request.repetitions));
    if (!request.json) {
      print_table(dtype, times);
      std::fflush(stdout);
    }
    json["results"].push_back({{"storage", to_string(dtype)},
                               {"d", config.width},
                               {"sublayers", config.num_sublayers},
                               {"block_sublayers", config.block_sublayers},
                               {"tokens", config.tokens()},
                               {"standard", json_of(times.standard)},
                               {"attnres", json_of(times.depth)},
                               {"overhead", over(times.depth.total(), times.standard.total())}});
  }
  if (request.json) {
    fmt::print("{}\n", json.dump());
  }
  return end_output();
}

}  // namespace
}  // namespace plumb::bench

int main(int argc, char** argv) {
  try {
    return plumb::bench::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const plumb::InputError& error) {
    fmt::print(stderr, "config: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "config: {}\n", error.what());
    return 3;
  }
}

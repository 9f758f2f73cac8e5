// SPDX-License-Identifier: Apache-2.0
// plumb bench kernels: its flags, its table, its JSON.
#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "kernels_bench.hpp"
#include "machine.hpp"
#include "plumb/kernels/cpu_execution.hpp"
#include "sibling.hpp"

namespace plumb::bench {
namespace {

constexpr const char* kernels_command = "plumb bench kernels";
constexpr const char* usage_text =
    "usage: plumb bench kernels [--tokens T] [--hidden d] [--sources N] [--queries S] [--dtype fp32|bf16|fp16]\n"
    "                           [--threads n] [--operator NAME] [--repetitions n] [--json]\n"
    "       plumb bench kernels --against torch [...]: one block of sublayers, here and in torch; more with --help\n\n"
    "  Operators of depth attention on the CPU beside the ceilings of this machine, measured in the same run:\n"
    "  memory streams (copy, or read for operators that write little) and multiply-adds from registers.\n"
    "  Defaults: T=4096 d=2048 N=8 S=16, fp32 and bf16, 1 thread, every operator, 9 repetitions.\n"
    "  One thread is measured in processor time, several on the clock, beside one: `gain` is how much faster the "
    "operator\n"
    "  is than alone, `bound` how much faster the ceiling is; a busy machine shows here. Takes about a minute and 2 "
    "GB.\n";

void print_table(const Machine& machine, const std::vector<KernelResult>& results) {
  fmt::print("{}, {} threads, {}, {}\n\n", machine.processor, machine.num_threads, machine.compiler,
             cpu::to_string(cpu::best_isa()));
  const bool gains =
      std::any_of(results.begin(), results.end(), [](const KernelResult& each) { return each.gain > 0; });
  fmt::print("{:<18} {:<5} {:>7} {:>10} {:>10} {:>10} {:>9} {:>9}{}\n", "operator", "dtype", "threads", "time us",
             "GB/s", "GFLOP/s", "of stream", "of bound", gains ? "     gain    bound    share" : "");
  for (const KernelResult& each : results) {
    fmt::print("{:<18} {:<5} {:>7} {:>10.0f} {:>10.1f} {:>10.1f} {:>8.1f}% {:>8.1f}%", each.name,
               to_string(each.storage), each.threads, each.time_us, each.bytes / each.time_us * 1e-3,
               each.flops / each.time_us * 1e-3, 100 * each.share_of_stream(), 100 * each.share_of_roofline());
    if (each.gain > 0) {
      fmt::print(" {:>7.2f}x {:>7.2f}x {:>8.2f}", each.gain, each.bound_gain, each.gain / each.bound_gain);
    }
    fmt::print("\n");
  }
  if (results.empty()) return;
  const KernelResult& last = results.back();
  fmt::print("\nceilings with {} thread(s): {:.1f} GFLOP/s; streams are given per operator in --json\n", last.threads,
             last.flops_per_second * 1e-9);
}

void print_json(const Machine& machine, const std::vector<KernelResult>& results) {
  nlohmann::ordered_json json;
  json["machine"] = {{"processor", machine.processor},
                     {"threads", machine.num_threads},
                     {"compiler", machine.compiler},
                     {"isa", cpu::to_string(cpu::best_isa())}};
  json["results"] = nlohmann::ordered_json::array();
  for (const KernelResult& each : results) {
    json["results"].push_back({{"operator", each.name},
                               {"storage", to_string(each.storage)},
                               {"tokens", each.tokens},
                               {"d", each.width},
                               {"sources", each.num_sources},
                               {"queries", each.num_queries},
                               {"threads", each.threads},
                               {"time_us", each.time_us},
                               {"bytes", each.bytes},
                               {"flops", each.flops},
                               {"stream_bytes_per_second", each.stream_bytes_per_second},
                               {"ceiling_flops_per_second", each.flops_per_second},
                               {"share_of_stream", each.share_of_stream()},
                               {"share_of_roofline", each.share_of_roofline()}});
    if (each.gain > 0) {
      json["results"].back()["gain_of_threads"] = each.gain;
      json["results"].back()["gain_of_bound"] = each.bound_gain;
    }
  }
  fmt::print("{}\n", json.dump());
}

// Runs the program that holds torch in place of this one, with the arguments but the two that asked for it.
int run_against(const std::vector<std::string>& arguments, std::size_t at) {
  if (at + 1 == arguments.size()) return refuse(kernels_command, "--against needs a value");
  if (arguments[at + 1] != "torch")
    return refuse(kernels_command, fmt::format("--against is '{}'; legal: torch", arguments[at + 1]));
  std::vector<std::string> passed;
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    if (k != at && k != at + 1) passed.push_back(arguments[k]);
  }
  return run_sibling("plumb-bench-torch", passed);
}

}  // namespace

int run_kernels_bench(const std::vector<std::string>& arguments) {
  const auto against = std::find(arguments.begin(), arguments.end(), "--against");
  if (against != arguments.end()) {
    return run_against(arguments, static_cast<std::size_t>(against - arguments.begin()));
  }
  KernelsRequest request;
  bool json = false;
  const auto take = [&](Flag& flag) {
    const auto count = [&] { return static_cast<int>(flag.number(1024)); };
    if (flag.is("--json")) {
      json = true;
    } else if (flag.is("--dtype")) {
      const std::string& text = flag.value();
      if (text != "fp32" && text != "bf16" && text != "fp16") throw flag.not_legal(text, "fp32, bf16, fp16");
      request.formats = {text == "fp32" ? Storage::fp32 : text == "bf16" ? Storage::bf16 : Storage::fp16};
    } else if (flag.is("--operator")) {
      request.only = flag.value();
      const auto& names = kernel_names();
      if (std::find(names.begin(), names.end(), request.only) == names.end())
        throw UsageError(fmt::format("no operator '{}'; there are {}", request.only, fmt::join(names, ", ")));
    } else if (flag.is("--tokens")) {
      request.tokens = flag.number(std::int64_t{1} << 24);
    } else if (flag.is("--hidden")) {
      request.width = flag.number(std::int64_t{1} << 20);
    } else if (flag.is("--threads")) {
      const int number = count();
      request.threads = number == 1 ? std::vector<int>{1} : std::vector<int>{1, number};
    } else if (flag.is("--sources")) {
      request.num_sources = count();
    } else if (flag.is("--queries")) {
      request.num_queries = count();
    } else if (flag.is("--repetitions")) {
      request.repetitions = count();
    } else {
      return false;
    }
    return true;
  };
  if (const auto ending = read_flags(arguments, kernels_command, usage_text, take)) return *ending;
  const std::vector<KernelResult> results = measure_kernels(request);
  (json ? print_json : print_table)(this_machine(), results);
  return end_output();
}

}  // namespace plumb::bench

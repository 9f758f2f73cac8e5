// SPDX-License-Identifier: Apache-2.0
// plumb-bench: what the parts cost on this machine. Started by `plumb bench`.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "kernels_bench.hpp"
#include "machine.hpp"
#include "runtime_bench.hpp"
#include "schedule_bench.hpp"
#include "sibling.hpp"
#include "sim_bench.hpp"

namespace {

using plumb::bench::Machine;
using plumb::bench::RuntimeCost;

constexpr const char* usage_text =
    "usage: plumb bench runtime|kernels|model|schedule|sim [--json]\n\n"
    "  runtime   the executor alone: empty stages, tiny tensors\n"
    "  kernels   depth attention on the CPU beside what memory and arithmetic allow; see plumb bench kernels --help\n"
    "  model     what depth attention adds to a training step; more with plumb bench model --help\n"
    "  schedule  planning, proving and simulating a large step; more with plumb bench schedule --help\n"
    "  sim       simulating a large step in several ways; more with plumb bench sim --help\n"
    "  --json    one JSON object on standard output\n";

constexpr const char* bench_command = "plumb bench";

void print_json(const Machine& machine, const RuntimeCost& cost) {
  nlohmann::ordered_json json;
  json["machine"] = {
      {"processor", machine.processor}, {"threads", machine.num_threads}, {"compiler", machine.compiler}};
  json["results"] =
      nlohmann::ordered_json::array({{{"dispatch_us", cost.dispatch_us}, {"handover_us", cost.handover_us}}});
  fmt::print("{}\n", json.dump());
}

void print_table(const Machine& machine, const RuntimeCost& cost) {
  fmt::print("{}, {} threads, {}\n\n", machine.processor, machine.num_threads, machine.compiler);
  fmt::print("dispatch  {:7.2f} us  per action, 1 rank, 8 virtual stages, one thread\n", cost.dispatch_us);
  fmt::print("handover  {:7.2f} us  per action of one rank, 4 ranks as threads\n", cost.handover_us);
}

int run(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments.front() == "kernels") {
    return plumb::bench::run_kernels_bench({arguments.begin() + 1, arguments.end()});
  }
  if (!arguments.empty() && arguments.front() == "model") {
    return plumb::bench::run_sibling("plumb-bench-model", {arguments.begin() + 1, arguments.end()});
  }
  if (!arguments.empty() && arguments.front() == "schedule") {
    return plumb::bench::run_schedule_bench({arguments.begin() + 1, arguments.end()});
  }
  if (!arguments.empty() && arguments.front() == "sim") {
    return plumb::bench::run_sim_bench({arguments.begin() + 1, arguments.end()});
  }
  std::string what;
  bool json = false;
  const auto take = [&](plumb::bench::Flag& flag) {
    if (flag.is("--json")) {
      json = true;
    } else if (!what.empty() || flag.name().starts_with("-")) {
      return false;
    } else {
      what = flag.name();
    }
    return true;
  };
  if (const auto ending = plumb::bench::read_flags(arguments, bench_command, usage_text, take)) return *ending;
  if (what.empty()) return plumb::bench::refuse(bench_command, "bench what? runtime, kernels, model, schedule or sim");
  if (what != "runtime") {
    return plumb::bench::refuse(
        bench_command, fmt::format("unknown benchmark '{}', expected runtime, kernels, model, schedule or sim", what));
  }
  const Machine machine = plumb::bench::this_machine();
  const RuntimeCost cost = plumb::bench::measure_runtime();
  (json ? print_json : print_table)(machine, cost);
  return plumb::bench::end_output();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    fmt::print(stderr, "peer: {}\n", error.what());
    return 3;
  }
}

// SPDX-License-Identifier: Apache-2.0
// plumb-bench-torch: depth attention of one block of sublayers, ours beside torch's, on the same data in one process.
// Started by `plumb bench kernels --against torch`.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <malloc.h>
#include <nlohmann/json.hpp>

#include "block_data.hpp"
#include "command.hpp"
#include "machine.hpp"
#include "our_block.hpp"
#include "plumb/kernels/cpu_execution.hpp"
#include "tensor_bytes.hpp"
#include "torch_block.hpp"

namespace plumb::bench {
namespace {

constexpr const char* usage_text =
    "usage: plumb bench kernels --against torch [--tokens T] [--hidden d] [--sources N] [--queries S]\n"
    "                                           [--repetitions n] [--json]\n\n"
    "  The aggregates of one block of S sublayers with N closed sources, fp32, one thread on both sides: the block\n"
    "  machine of this library, and torch\n"
    "    per sublayer     stack all sources, normalise, score, softmax, weighted sum: the formula as it is printed\n"
    "    batched          normalise once, one product for the scores and one for the mixtures of all sublayers\n"
    "    batched, scaled  the same, logits divided by norms instead of rows\n"
    "  Results are compared first. Processor time, of every step the fastest repetition: torch as it comes, every "
    "large\n"
    "  tensor fresh pages of the system, and with malloc told to keep them. Bytes are the most held beyond the "
    "operands,\n"
    "  gradients of the sources included. The graphs of `per sublayer` take 14 GB at full size: its backward runs on a "
    "quarter of the\n"
    "  tokens, ours beside it too. Defaults: T=4096 d=2048 N=8 S=16, 3 repetitions. Takes some minutes and 6 GB.\n";

struct Pass {
  double seconds = 0;
  std::size_t bytes = 0;
};

struct Row {
  TorchForm form;
  bool backward = false;
  std::int64_t tokens = 0;
  Pass ours;
  Pass torch;
  double torch_seconds_on_kept_pages = 0;

  double speed() const { return torch.seconds / ours.seconds; }
  double speed_on_kept_pages() const { return torch_seconds_on_kept_pages / ours.seconds; }
  double memory() const { return static_cast<double>(torch.bytes) / static_cast<double>(ours.bytes); }
};

struct Difference {
  const char* what;
  double relative;
  double bound;
};

// From now on malloc keeps the pages of large pieces for the next ones. There is no way back: what it has kept it
// keeps.
void keep_pages() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

void run(OurBlock& ours, bool backward, Steps& steps) {
  backward ? ours.train(steps, nullptr) : ours.forward(steps, nullptr);
}
void run(TorchBlock& torch, bool backward, Steps& steps) {
  backward ? torch.train(steps, nullptr) : torch.forward(steps, nullptr);
}

// Both sides in turns, the fastest of each step. With `kept` pages torch starts on some that it has used before.
void measure(const BlockData& data, int repetitions, bool kept, Row& row) {
  OurBlock ours(data, row.tokens, row.backward);
  const std::size_t before = allocated_bytes();
  Steps our_steps;
  run(ours, row.backward, our_steps);
  row.ours.bytes = allocated_bytes() - before;

  TorchBlock torch(data, row.tokens, row.form);
  peak_tensor_bytes();
  Steps first;
  run(torch, row.backward, first);
  const auto tensor_bytes = static_cast<std::size_t>(row.tokens * data.shape.width) * sizeof(float);
  const std::size_t num_results = 1 + (row.backward ? data.sources.size() : 0);
  row.torch.bytes = peak_tensor_bytes() - num_results * tensor_bytes;

  Steps torch_steps = kept ? Steps() : first;
  for (int repetition = kept ? 0 : 1; repetition < repetitions; ++repetition) {
    run(ours, row.backward, our_steps);
    run(torch, row.backward, torch_steps);
  }
  row.ours.seconds = kept ? std::min(row.ours.seconds, our_steps.seconds()) : our_steps.seconds();
  (kept ? row.torch_seconds_on_kept_pages : row.torch.seconds) = torch_steps.seconds();
}

// The bounds are those of two fp32 computations whose sums have different orders; sums over tokens of terms that cancel
// are the loosest.
std::vector<Difference> differences(const BlockData& data, TorchForm form, std::int64_t tokens) {
  BlockResults ours;
  BlockResults torchs;
  Steps unused;
  OurBlock(data, tokens, true).train(unused, &ours);
  TorchBlock(data, tokens, form).train(unused, &torchs);
  return {{"h", relative_difference(ours.h, torchs.h), 3e-6},
          {"the closed block", relative_difference(ours.closed, torchs.closed), 3e-6},
          {"gradients of outputs", relative_difference(ours.grad_outputs, torchs.grad_outputs), 1e-5},
          {"gradients of sources", relative_difference(ours.grad_sources, torchs.grad_sources), 1e-5},
          {"gradients of queries", relative_difference(ours.grad_queries, torchs.grad_queries), 2e-5},
          {"gradients of gains", relative_difference(ours.grad_gains, torchs.grad_gains), 2e-5}};
}

bool agree(const BlockData& data, std::int64_t tokens) {
  for (const TorchForm form : {TorchForm::per_sublayer, TorchForm::batched, TorchForm::batched_scaled}) {
    for (const Difference& each : differences(data, form, tokens)) {
      if (!(each.relative <= each.bound)) {
        fmt::print(stderr, "mismatch: {} of torch, {}: relative difference {:.1e}, at most {:.0e} expected\n",
                   each.what, to_string(form), each.relative, each.bound);
        return false;
      }
    }
  }
  return true;
}

constexpr double kMiB = 1024.0 * 1024.0;

void print_table(const Machine& machine, const BlockShape& shape, const std::vector<Row>& rows) {
  fmt::print("{}, {}, {}, torch {}, one thread\n", machine.processor, machine.compiler, cpu::to_string(cpu::best_isa()),
             torch_version());
  fmt::print("{} sublayers, {} closed sources, d={}, fp32; results agree\n\n", shape.num_sublayers, shape.num_sources,
             shape.width);
  fmt::print("{:<16} {:<17} {:>6} {:>8} {:>9} {:>6} {:>11} {:>6} {:>9} {:>10} {:>6}\n", "torch", "pass", "tokens",
             "ours ms", "torch ms", "ratio", "pages kept", "ratio", "ours MiB", "torch MiB", "ratio");
  for (const Row& each : rows) {
    fmt::print("{:<16} {:<17} {:>6} {:>8.1f} {:>9.1f} {:>5.1f}x {:>11.1f} {:>5.1f}x {:>9.0f} {:>10.0f} {:>5.1f}x\n",
               to_string(each.form), each.backward ? "forward+backward" : "forward", each.tokens,
               each.ours.seconds * 1e3, each.torch.seconds * 1e3, each.speed(), each.torch_seconds_on_kept_pages * 1e3,
               each.speed_on_kept_pages(), static_cast<double>(each.ours.bytes) / kMiB,
               static_cast<double>(each.torch.bytes) / kMiB, each.memory());
  }
}

void print_json(const Machine& machine, const BlockShape& shape, const std::vector<Row>& rows) {
  nlohmann::ordered_json json;
  json["machine"] = {{"processor", machine.processor},
                     {"threads", 1},
                     {"compiler", machine.compiler},
                     {"isa", cpu::to_string(cpu::best_isa())},
                     {"torch", torch_version()}};
  json["results"] = nlohmann::ordered_json::array();
  for (const Row& each : rows) {
    json["results"].push_back({{"torch_form", to_string(each.form)},
                               {"backward", each.backward},
                               {"tokens", each.tokens},
                               {"d", shape.width},
                               {"sources", shape.num_sources},
                               {"sublayers", shape.num_sublayers},
                               {"time_us", each.ours.seconds * 1e6},
                               {"torch_time_us", each.torch.seconds * 1e6},
                               {"speed_ratio", each.speed()},
                               {"torch_time_us_on_kept_pages", each.torch_seconds_on_kept_pages * 1e6},
                               {"speed_ratio_on_kept_pages", each.speed_on_kept_pages()},
                               {"peak_extra_bytes", each.ours.bytes},
                               {"torch_peak_extra_bytes", each.torch.bytes},
                               {"memory_ratio", each.memory()}});
  }
  fmt::print("{}\n", json.dump());
}

int run(const std::vector<std::string>& arguments) {
  BlockShape shape;
  int repetitions = 3;
  bool json = false;
  const auto take = [&](Flag& flag) {
    constexpr std::int64_t most_long = 1 << 20;
    const auto count = [&] { return static_cast<int>(flag.number(256)); };
    if (flag.is("--json")) {
      json = true;
    } else if (flag.is("--tokens")) {
      shape.tokens = flag.number(most_long);
    } else if (flag.is("--hidden")) {
      shape.width = flag.number(most_long);
    } else if (flag.is("--sources")) {
      shape.num_sources = count();
    } else if (flag.is("--queries")) {
      shape.num_sublayers = count();
    } else if (flag.is("--repetitions")) {
      repetitions = count();
    } else {
      return false;
    }
    return true;
  };
  if (const auto ending = read_flags(arguments, "plumb bench kernels --against torch", usage_text, take))
    return *ending;
  use_one_thread();
  count_tensor_bytes();
  const BlockData data(shape);
  if (!agree(data, std::min<std::int64_t>(shape.tokens, 300))) return 1;
  std::vector<Row> rows;
  for (const TorchForm form : {TorchForm::batched, TorchForm::batched_scaled, TorchForm::per_sublayer}) {
    for (const bool backward : {false, true}) {
      const bool huge = backward && form == TorchForm::per_sublayer;
      rows.push_back({form, backward, huge ? (shape.tokens + 3) / 4 : shape.tokens, {}, {}});
    }
  }
  for (const bool kept : {false, true}) {
    if (kept) keep_pages();
    for (Row& each : rows) {
      measure(data, repetitions, kept, each);
    }
  }
  (json ? print_json : print_table)(this_machine(), shape, rows);
  return end_output();
}

}  // namespace
}  // namespace plumb::bench

int main(int argc, char** argv) {
  try {
    return plumb::bench::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    fmt::print(stderr, "peer: {}\n", error.what());
    return 3;
  }
}

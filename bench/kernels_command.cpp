// SPDX-License-Identifier: Apache-2.0
// plumb bench kernels: its flags, its table, its JSON.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels_bench.hpp"
#include "machine.hpp"
#include "plumb/kernels/cpu_execution.hpp"
#include "sibling.hpp"

namespace plumb::bench {
namespace {

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

int refuse_kernels(const std::string& what) {
  fmt::print(stderr, "usage: {}; see plumb bench kernels --help\n", what);
  return 2;
}

// The value of a numeric flag within its bounds; false after complaining.
bool read_number(const std::string& flag, const std::string& text, std::int64_t most, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 1 && value <= most) return true;
  refuse_kernels(fmt::format("{} is '{}'; legal: 1..{}", flag, text, most));
  return false;
}

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
  if (at + 1 == arguments.size()) return refuse_kernels("--against needs a value");
  if (arguments[at + 1] != "torch")
    return refuse_kernels(fmt::format("--against is '{}'; legal: torch", arguments[at + 1]));
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
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    const std::string& flag = arguments[k];
    if (flag == "--help" || flag == "-h") {
      fmt::print("{}", usage_text);
      return 0;
    }
    if (flag == "--json") {
      json = true;
      continue;
    }
    constexpr std::string_view known[] = {"--tokens", "--hidden",   "--sources", "--queries",
                                          "--dtype",  "--operator", "--threads", "--repetitions"};
    if (std::find(std::begin(known), std::end(known), flag) == std::end(known)) {
      return refuse_kernels(fmt::format("unknown argument '{}'", flag));
    }
    if (k + 1 == arguments.size()) return refuse_kernels(fmt::format("{} needs a value", flag));
    const std::string& text = arguments[++k];
    std::int64_t value = 0;
    if (flag == "--dtype") {
      if (text != "fp32" && text != "bf16" && text != "fp16") {
        return refuse_kernels(fmt::format("--dtype is '{}'; legal: fp32, bf16, fp16", text));
      }
      request.formats = {text == "fp32" ? Storage::fp32 : text == "bf16" ? Storage::bf16 : Storage::fp16};
    } else if (flag == "--operator") {
      const auto& names = kernel_names();
      if (std::find(names.begin(), names.end(), text) == names.end()) {
        return refuse_kernels(fmt::format("no operator '{}'; there are {}", text, fmt::join(names, ", ")));
      }
      request.only = text;
    } else if (flag == "--tokens") {
      if (!read_number(flag, text, std::int64_t{1} << 24, request.tokens)) return 2;
    } else if (flag == "--hidden") {
      if (!read_number(flag, text, std::int64_t{1} << 20, request.width)) return 2;
    } else {
      if (!read_number(flag, text, 1024, value)) return 2;
      const int number = static_cast<int>(value);
      if (flag == "--threads") {
        request.threads = number == 1 ? std::vector<int>{1} : std::vector<int>{1, number};
      } else {
        (flag == "--sources"   ? request.num_sources
         : flag == "--queries" ? request.num_queries
                               : request.repetitions) = number;
      }
    }
  }
  const std::vector<KernelResult> results = measure_kernels(request);
  (json ? print_json : print_table)(this_machine(), results);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fmt::print(stderr, "config: cannot write to standard output\n");
    return 3;
  }
  return 0;
}

}  // namespace plumb::bench

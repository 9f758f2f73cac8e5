// SPDX-License-Identifier: Apache-2.0
#include "plumb/kernels/cpu_execution.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cpu_scratch.hpp"
#include "plumb/kernels/operand_error.hpp"

namespace plumb::cpu {

bool is_supported(Isa isa) {
#if defined(__x86_64__)
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  switch (isa) {
    case Isa::baseline:
      return true;
    case Isa::avx2:
      return has_avx2;
    case Isa::avx512:
      return has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  return false;
#else
  return isa == Isa::baseline;
#endif
}

Isa best_isa() { return is_supported(Isa::avx512) ? Isa::avx512 : is_supported(Isa::avx2) ? Isa::avx2 : Isa::baseline; }

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return "baseline";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  throw std::invalid_argument("instruction set number " + std::to_string(static_cast<int>(isa)) +
                              " does not exist; legal: baseline, avx2, avx512");
}

std::size_t workspace_bytes(const DepthProblem& problem, int num_sources, int num_queries, int num_threads) {
  const auto in_range = [](const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value < low || value > high) {
      throw OperandError("workspace", what,
                         "is " + std::to_string(value) + "; legal: " + std::to_string(low) + ".." +
                             std::to_string(high) + ", nearest " + std::to_string(std::clamp(value, low, high)));
    }
  };
  in_range("num_sources", num_sources, 1, kMaxSources);
  in_range("num_queries", num_queries, 1, kMaxQueries);
  in_range("num_threads", num_threads, 1, 1024);
  in_range("width", problem.width, 1, std::int64_t{1} << 24);
  return kernels_detail::scratch_bytes(problem, num_sources, num_queries) * static_cast<std::size_t>(num_threads);
}

}  // namespace plumb::cpu

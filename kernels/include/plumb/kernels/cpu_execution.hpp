// SPDX-License-Identifier: Apache-2.0
// cpu_execution.hpp: where and how an operator runs on the CPU: instruction set, threads, workspace.
//
// None of it changes a bit of any result. It is NOT global: whoever calls brings it along. The threads sleep between
// calls, soon after the last. Ownership: an Execution only refers. Threads: one operator at a time per CpuThreads and
// per workspace.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "plumb/kernels/depth_attention.hpp"

namespace plumb::cpu {

/// avx2 means AVX2, FMA and F16C; avx512 means AVX-512 F, BW, DQ and VL besides. baseline runs everywhere, slowly.
enum class Isa { baseline, avx2, avx512 };

bool is_supported(Isa isa);

/// The fastest this processor has.
Isa best_isa();

/// "baseline", "avx2", "avx512". Throws std::invalid_argument for a value outside the enumeration.
std::string_view to_string(Isa isa);

/// A fixed number of threads, the calling one among them.
class CpuThreads {
 public:
  /// Throws std::invalid_argument unless 1 <= num_threads <= 1024.
  explicit CpuThreads(int num_threads);
  ~CpuThreads();
  CpuThreads(const CpuThreads&) = delete;
  CpuThreads& operator=(const CpuThreads&) = delete;

  int num_threads() const;

  /// Calls work(context, k) for every k in [0, num_threads), k = 0 here, and returns when all are done. `work` must not
  /// throw. No allocation.
  void run(void (*work)(void* context, int thread), void* context);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct Execution {
  std::span<std::byte> workspace;  ///< 64-byte aligned, at least workspace_bytes(); contents do not matter.
  CpuThreads* threads = nullptr;   ///< null: the calling thread alone.
  Isa isa = best_isa();            ///< REQUIRES: is_supported(isa).
  /// Outputs whose tensor has this many bytes are stored past the caches, where their rows are whole cache lines.
  std::size_t stream_bytes = std::size_t{8} << 20;
};

/// What one call may have at most.
inline constexpr int kMaxSources = 4096;
inline constexpr int kMaxQueries = 4096;

/// Enough for every operator with up to so many sources (`later` and partial included) and queries or readers. It does
/// not grow with the tokens. Throws OperandError for numbers outside the limits above.
std::size_t workspace_bytes(const DepthProblem& problem, int num_sources, int num_queries, int num_threads);

}  // namespace plumb::cpu

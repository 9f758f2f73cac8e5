// SPDX-License-Identifier: Apache-2.0
// cpu_kernels.hpp (private): the table of functions that each instruction set provides, and their operands.
//
// A task is one operator on raw pointers; a function works on tokens [begin, end) of it in the calling thread and
// writes nothing else, so ranges may run side by side. Operands have been checked. `scratch` is 64-byte aligned memory
// of the thread. Files compiled for an instruction set may instantiate nothing of the standard library: an inline
// function compiled for it could become the program's only copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plumb/kernels/depth_attention.hpp"
#include "plumb/kernels/depth_attention_backward.hpp"

namespace plumb::kernels_detail {

struct TaskShape {
  std::int64_t width = 0;
  float eps = 0;
};

struct ScaleTask {
  TaskShape shape;
  const void* block = nullptr;
  float* inverse_rms = nullptr;
};

struct AddTask {
  TaskShape shape;
  const void* partial = nullptr;  // null: out = output
  const void* output = nullptr;
  void* out = nullptr;
  float* inverse_rms = nullptr;  // of out, if wanted
};

struct WeightedSumTask {
  TaskShape shape;
  const void* const* sources = nullptr;
  int num_sources = 0;
  const float* weights = nullptr;  // [tokens, num_sources, stride]
  std::int64_t stride = 0;
  void* const* out = nullptr;
  int num_outputs = 0;
  bool stream = false;
  std::byte* scratch = nullptr;
};

struct PhaseOneTask {
  TaskShape shape;
  const DepthSource* sources = nullptr;
  int num_sources = 0;
  void* const* inverse_rms_out = nullptr;  // per source; may be null, as may its elements
  const PhaseOneQuery* queries = nullptr;
  int num_queries = 0;
  bool stream = false;
  std::byte* scratch = nullptr;
};

/// Direct aggregate, or merge when `prior` is given.
struct MixTask {
  TaskShape shape;
  const void* prior = nullptr;
  const float* prior_lse = nullptr;
  const DepthSource* sources = nullptr;
  int num_sources = 0;
  const void* output = nullptr;  // added to the last source into partial_out
  void* partial_out = nullptr;
  const float* query = nullptr;
  const float* norm_gain = nullptr;
  float norm_eps = 0;
  void* h = nullptr;  // may be null
  float* lse = nullptr;
  bool stream = false;
  std::byte* scratch = nullptr;
};

struct MergeBackwardTask {
  TaskShape shape;
  const float* mixture = nullptr;
  const float* mixture_lse = nullptr;
  const DepthSource* later = nullptr;
  int num_later = 0;
  const float* query = nullptr;
  const float* grad_h = nullptr;
  const float* lse = nullptr;
  float* delta = nullptr;
  float* grad_partial = nullptr;
  float* query_sums = nullptr;
  std::byte* scratch = nullptr;
};

/// Ranges start and end where a run of kTokensPerRun tokens does.
struct AggregateBackwardTask {
  TaskShape shape;
  const DepthSourceGradient* sources = nullptr;
  int num_sources = 0;
  const float* query = nullptr;
  const float* grad_h = nullptr;
  float* query_sums = nullptr;
  bool stream = false;
  std::byte* scratch = nullptr;
};

struct InterBlockTask {
  TaskShape shape;
  const DepthSourceGradient* sources = nullptr;
  int num_sources = 0;
  const InterBlockReader* readers = nullptr;
  int num_readers = 0;
  bool stream = false;
  std::byte* scratch = nullptr;
};

template <class Task>
using TaskFunction = void (*)(const Task& task, std::int64_t begin, std::int64_t end);

/// One per storage format. Index 1 of a pair takes or makes an fp32 mixture whatever the storage.
struct StorageKernels {
  TaskFunction<ScaleTask> inverse_rms;
  TaskFunction<AddTask> add_output;
  TaskFunction<WeightedSumTask> weighted_sum;
  TaskFunction<PhaseOneTask> phase_one[2];
  TaskFunction<MixTask> mix[2];
  TaskFunction<MergeBackwardTask> merge_backward;
  TaskFunction<AggregateBackwardTask> aggregate_backward;
  TaskFunction<InterBlockTask> inter_block_backward;
};

struct CpuKernels {
  StorageKernels fp32;
  StorageKernels bf16;
  StorageKernels fp16;
};

/// The last two exist on x86-64 only; elsewhere they return the first.
const CpuKernels& baseline_kernels();
const CpuKernels& avx2_kernels();
const CpuKernels& avx512_kernels();

/// Tokens worked on together: as many as keep their rows in the second-level cache, 1 at least. Changes no bit.
inline constexpr std::int64_t kMostTokensPerTile = 16;
inline constexpr std::int64_t kTileBytes = 256 * 1024;
constexpr std::int64_t tokens_per_tile(std::int64_t bytes_per_token, std::int64_t most,
                                       std::int64_t tile_bytes = kTileBytes) {
  const std::int64_t fit = tile_bytes / bytes_per_token;
  return fit < 1 ? 1 : fit > most ? most : fit;
}

/// Numbers per (token, source) are kept in rows of whole vectors.
constexpr std::int64_t padded(std::int64_t count) { return (count + 15) / 16 * 16; }

/// Hands out scratch memory piece by piece.
class Scratch64 {
 public:
  explicit Scratch64(std::byte* memory) : next_(memory) {}

  template <class T>
  [[gnu::always_inline]] T* take(std::int64_t count) {
    T* const piece = reinterpret_cast<T*>(next_);
    next_ += bytes<T>(count);
    return piece;
  }
  template <class T>
  [[gnu::always_inline]] static constexpr std::size_t bytes(std::int64_t count) {
    return (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
  }

 private:
  std::byte* next_;
};

}  // namespace plumb::kernels_detail

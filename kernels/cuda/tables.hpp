// SPDX-License-Identifier: Apache-2.0
// tables.hpp (private): limits of a call, and the tables of its workspace, which kernels of one call pass on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace plumb::cuda_detail {

/// Most sources of a call: what fits into the parameters of a kernel, where pointer lists live.
inline constexpr int kMostSources = 128;
/// Queries that share one read of the sources.
inline constexpr int kBatch = 8;

/// Takes tables out of the workspace, in order, each aligned to 256 bytes.
class Tables {
 public:
  explicit Tables(void* workspace) : next_(static_cast<std::byte*>(workspace)) {}
  float* take(std::int64_t count) {
    float* out = reinterpret_cast<float*>(next_);
    next_ += bytes(count);
    return out;
  }
  static std::size_t bytes(std::int64_t count) {
    return (static_cast<std::size_t>(count) * sizeof(float) + 255) / 256 * 256;
  }

 private:
  std::byte* next_;
};

/// Enough for every operator with up to so many sources and queries.
inline std::size_t table_bytes(std::int64_t tokens, int num_sources, int num_queries) {
  const std::int64_t pairs = tokens * std::max(num_sources, 1);
  const std::int64_t batch = std::min(std::max(num_queries, 1), kBatch);
  return 2 * Tables::bytes(pairs) + 2 * Tables::bytes(pairs * batch) + Tables::bytes(tokens);
}

}  // namespace plumb::cuda_detail

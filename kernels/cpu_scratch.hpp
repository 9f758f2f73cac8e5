// SPDX-License-Identifier: Apache-2.0
// cpu_scratch.hpp (private): scratch memory of one thread, as the kernels divide it.
#pragma once

#include <algorithm>
#include <cstddef>

#include "cpu_inter_block.hpp"

namespace plumb::kernels_detail {

/// The most any operator takes with up to so many sources and queries.
inline std::size_t scratch_bytes(const DepthProblem& problem, std::int64_t num_sources, std::int64_t num_queries) {
  const auto value_bytes = static_cast<std::int64_t>(bytes_per_element(problem.storage));
  return std::max({phase_one_scratch_bytes(problem.width, value_bytes, num_sources, num_queries),
                   weighted_sum_scratch_bytes(num_sources, num_queries), mix_scratch_bytes(problem.width, num_sources),
                   merge_backward_scratch_bytes(num_sources), aggregate_backward_scratch_bytes(num_sources),
                   inter_block_scratch_bytes(problem.width, num_sources, num_queries)});
}

}  // namespace plumb::kernels_detail

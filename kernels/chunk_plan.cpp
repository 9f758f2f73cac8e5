// SPDX-License-Identifier: Apache-2.0
#include "chunk_plan.hpp"

#include <algorithm>

namespace plumb::kernels_detail {

ChunkPlan make_chunk_plan(const DepthConfig& config, const ChunkRange& chunk) {
  validate(config);
  ChunkPlan plan;
  plan.depth = chunk_depth(config, chunk);
  plan.head = chunk.has_head && config.head_aggregate;
  const int block_length = config.block_length;
  const int group_length = config.mode == DepthMode::full ? config.schedule_length : block_length;
  int unsaved = 0;
  for (int i = 0; i < chunk.count; ++i) {
    const int sublayer = chunk.first + i;
    const int group_begin = sublayer / group_length * group_length;
    if (plan.parts.empty() || sublayer == group_begin) {
      plan.parts.push_back({.begin = i, .end = i, .num_prior = group_begin / block_length + 1});
      unsaved = 0;
    }
    plan.parts.back().end = i + 1;

    SublayerPlan each;
    each.block = sublayer / block_length + 1;
    each.opens = sublayer % block_length == 0;
    each.closes = (sublayer + 1) % block_length == 0 || sublayer + 1 == config.num_sublayers;
    each.part = static_cast<int>(plan.parts.size()) - 1;
    each.unsaved = unsaved;
    if (!each.closes && i + 1 < chunk.count) {
      each.saved_partial = plan.num_saved_partials++;
    } else {
      plan.most_unsaved = std::max(plan.most_unsaved, ++unsaved);
    }
    plan.sublayers.push_back(each);
  }
  for (const Part& part : plan.parts) {
    plan.longest_part = std::max(plan.longest_part, part.size());
  }
  plan.num_read = plan.head ? num_blocks(config) + 1 : plan.sublayers.empty() ? 0 : plan.sublayers.back().block;
  return plan;
}

}  // namespace plumb::kernels_detail

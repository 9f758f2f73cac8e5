// SPDX-License-Identifier: Apache-2.0
// depth_parameters.hpp: queries and key gains of one chunk's aggregates, with their gradients.
//
// Per aggregate (one per sublayer, one for the head) a query w[d] and a gain g[d]; the logit of source v is
// (w*g) . v / rms(v). Over all chunks of a model the names are disjoint and sum to num_depth_parameters(config).
// It is NOT an optimizer: the host updates values and clears gradients through the views, whose addresses never
// change. Format: gradient_storage(config.storage). Ownership: this object. Threads: none of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "plumb/kernels/depth_config.hpp"

namespace plumb {

/// One named parameter; both views are [1, width]. Names: "depth.<sublayer>.query", "depth.<sublayer>.gain" with the
/// sublayer counted over the whole model from 0, "depth.head.query", "depth.head.gain".
struct DepthParameter {
  std::string name;
  View value;
  View gradient;
};

/// Query and gain of one aggregate.
struct AggregateParameters {
  View query;
  View gain;
  View query_gradient;
  View gain_gradient;
};

class DepthParameters {
 public:
  /// Gains one, queries as config.query_init says, gradients zero. Throws std::invalid_argument on a bad config or
  /// range. The head's pair exists when chunk.has_head and config.head_aggregate.
  DepthParameters(const DepthConfig& config, const ChunkRange& chunk);
  ~DepthParameters();
  DepthParameters(DepthParameters&&) noexcept;
  DepthParameters& operator=(DepthParameters&&) noexcept;

  const DepthConfig& config() const;
  const ChunkRange& chunk() const;

  /// Calls `visit` for every parameter once: sublayers ascending, query before gain, the head last.
  void for_each(const std::function<void(const DepthParameter&)>& visit) const;

  /// Aggregate of the chunk's sublayer `index`, counted from 0 within the chunk.
  AggregateParameters sublayer(int index) const;

  /// Aggregate of the head. Throws std::logic_error when this chunk has none.
  AggregateParameters head() const;

  bool has_head() const;
  std::int64_t num_values() const;
  void zero_gradients();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plumb

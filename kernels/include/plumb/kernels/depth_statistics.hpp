// SPDX-License-Identifier: Apache-2.0
// depth_statistics.hpp: what the aggregates of one chunk do with their sources: diagnostics for people.
//
// A block machine that was given one adds to it while it is active: per aggregate, sums over the tokens of all forwards
// and backwards since clear(). Weights are computed again from the operands of the forward (fp32 logits of the
// operators, softmax in double; fp64 throughout under fp64): each source is read once more, a small part of what a
// sublayer costs. A recomputed forward is not counted again. It is NOT part of training: no result depends on it, and
// without one the machine does not do more than look for it. Entropies are in nats. Ownership: this object. Threads:
// that of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plumb/kernels/cpu_operators.hpp"
#include "plumb/kernels/depth_config.hpp"

namespace plumb {

/// Sums of one aggregate, and of the sublayer that reads it.
struct AggregateSums {
  std::int64_t num_tokens = 0;        ///< tokens of all forwards; divide by it for means over tokens.
  double entropy = 0;                 ///< sum over tokens of -sum_i p_i log p_i.
  std::vector<double> block_weights;  ///< [block]: sum over tokens of the weight of b_0, b_1, ..; empty before any.
  double partial_weight = 0;          ///< the same of the open partial sum.
  bool reads_partial = false;
  double output_squares = 0;           ///< sum of f^2 over tokens and elements; the head's: of its aggregate h.
  double output_gradient_squares = 0;  ///< sum of (dL/df)^2, of all backwards.
};

class DepthStatistics {
 public:
  /// Throws std::invalid_argument on a bad config or range.
  DepthStatistics(const DepthConfig& config, const ChunkRange& chunk);

  /// One row per sublayer of the chunk, then the head's aggregate where the chunk has it.
  const std::vector<AggregateSums>& rows() const { return rows_; }

  /// Whether the machine adds to it; off at first. May change between two calls of the machine.
  void set_active(bool active) { active_ = active; }
  bool active() const { return active_; }
  void clear();

  /// What the machine calls. `sources`: every source of the aggregate once, its partial last if it reads one.
  void add_weights(std::size_t row, const DepthProblem& problem, std::span<const DepthSource> sources,
                   bool reads_partial, const void* folded_query, const cpu::Execution& execution);
  void add_output(std::size_t row, const ConstView& output);
  void add_output_gradient(std::size_t row, const ConstView& gradient);

 private:
  std::vector<AggregateSums> rows_;
  template <class T>
  void add_logits(std::vector<T>& logits, AggregateSums& row, const DepthProblem& problem,
                  std::span<const DepthSource> sources, const void* folded_query, const cpu::Execution& execution);

  std::vector<float> logits_fp32_;  // [source, token]; one of the two, as gradient_storage says
  std::vector<double> logits_fp64_;
  std::vector<double> weights_;  // [source] of one token
  bool active_ = false;
};

}  // namespace plumb

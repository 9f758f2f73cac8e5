// SPDX-License-Identifier: Apache-2.0
#include "plumb/kernels/depth_statistics.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "plumb/kernels/number_formats.hpp"

namespace plumb {

namespace {

double to_double(double value) { return value; }
double to_double(float value) { return value; }
double to_double(Bf16 value) { return to_float(value); }
double to_double(Fp16 value) { return to_float(value); }

// Eight running sums, so that one addition need not wait for the one before.
template <class T>
double sum_of_squares(const ConstView& view) {
  constexpr std::int64_t num_lanes = 8;
  std::array<double, num_lanes> lanes{};
  const T* const data = elements<T>(view);
  const std::int64_t count = view.num_elements();
  for (std::int64_t i = 0; i < count; i += num_lanes) {
    for (std::int64_t lane = 0; lane < std::min(num_lanes, count - i); ++lane) {
      const double value = to_double(data[i + lane]);
      lanes[static_cast<std::size_t>(lane)] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

double squares(const ConstView& view) {
  switch (view.storage) {
    case Storage::fp64:
      return sum_of_squares<double>(view);
    case Storage::bf16:
      return sum_of_squares<Bf16>(view);
    case Storage::fp16:
      return sum_of_squares<Fp16>(view);
    case Storage::fp32:
      break;
  }
  return sum_of_squares<float>(view);
}

// Weights of one token from its logits, which lie `stride` apart, and their entropy.
template <class T>
double softmax(const T* logits, std::size_t stride, std::span<double> weights) {
  double largest = logits[0];
  for (std::size_t i = 1; i < weights.size(); ++i) {
    largest = std::max(largest, to_double(logits[i * stride]));
  }
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = std::exp(to_double(logits[i * stride]) - largest);
    sum += weights[i];
  }
  double entropy = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] /= sum;
    // -p log p = p (log of the sum - (s - largest)), which is 0 where p is.
    entropy += weights[i] > 0 ? weights[i] * (std::log(sum) - (to_double(logits[i * stride]) - largest)) : 0;
  }
  return entropy;
}

template <class T>
void add_tokens(const T* logits, std::size_t num_tokens, std::span<double> weights, AggregateSums& row) {
  const std::size_t num_blocks = weights.size() - (row.reads_partial ? 1 : 0);
  for (std::size_t t = 0; t < num_tokens; ++t) {
    row.entropy += softmax(logits + t, num_tokens, weights);
    for (std::size_t i = 0; i < num_blocks; ++i) {
      row.block_weights[i] += weights[i];
    }
    row.partial_weight += row.reads_partial ? weights.back() : 0;
  }
}

}  // namespace

DepthStatistics::DepthStatistics(const DepthConfig& config, const ChunkRange& chunk) {
  static_cast<void>(chunk_depth(config, chunk));  // throws
  rows_.resize(static_cast<std::size_t>(chunk.count) + (chunk.has_head && config.head_aggregate ? 1 : 0));
}

void DepthStatistics::clear() {
  for (AggregateSums& row : rows_) {
    row = {};
  }
}

template <class T>
void DepthStatistics::add_logits(std::vector<T>& logits, AggregateSums& row, const DepthProblem& problem,
                                 std::span<const DepthSource> sources, const void* folded_query,
                                 const cpu::Execution& execution) {
  const auto tokens = static_cast<std::size_t>(problem.tokens);
  logits.resize(sources.size() * tokens);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    // The log sum over one source is its logit.
    const PhaseOneQuery query{folded_query, nullptr, logits.data() + i * tokens};
    cpu::phase_one_forward(problem, {sources.subspan(i, 1), {&query, 1}}, execution);
  }
  add_tokens(logits.data(), tokens, weights_, row);
}

void DepthStatistics::add_weights(std::size_t row, const DepthProblem& problem, std::span<const DepthSource> sources,
                                  bool reads_partial, const void* folded_query, const cpu::Execution& execution) {
  AggregateSums& own = rows_.at(row);
  own.num_tokens += problem.tokens;
  own.reads_partial = reads_partial;
  own.block_weights.resize(sources.size() - (reads_partial ? 1 : 0));
  weights_.resize(sources.size());
  if (problem.storage == Storage::fp64) {
    add_logits(logits_fp64_, own, problem, sources, folded_query, execution);
  } else {
    add_logits(logits_fp32_, own, problem, sources, folded_query, execution);
  }
}

void DepthStatistics::add_output(std::size_t row, const ConstView& output) {
  rows_.at(row).output_squares += squares(output);
}

void DepthStatistics::add_output_gradient(std::size_t row, const ConstView& gradient) {
  rows_.at(row).output_gradient_squares += squares(gradient);
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "plumb/kernels/depth_parameters.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include "plumb/kernels/counter_rng.hpp"

namespace plumb {

// One contiguous run of values and one of gradients; aggregate k owns 2 * width elements: query, then gain.
struct DepthParameters::State {
  DepthConfig config;
  ChunkRange chunk;
  bool has_head = false;
  std::vector<std::byte> values;
  std::vector<std::byte> gradients;

  int num_aggregates() const { return chunk.count + (has_head ? 1 : 0); }

  View view(std::vector<std::byte>& memory, int row) const {
    const Storage storage = gradient_storage(config.storage);
    const std::size_t bytes = static_cast<std::size_t>(config.width) * bytes_per_element(storage);
    return {memory.data() + static_cast<std::size_t>(row) * bytes, 1, config.width, storage};
  }

  AggregateParameters aggregate(int k) {
    return {view(values, 2 * k), view(values, 2 * k + 1), view(gradients, 2 * k), view(gradients, 2 * k + 1)};
  }

  std::string name(int k, const char* which) const {
    const std::string owner = k == chunk.count ? "head" : std::to_string(chunk.first + k);
    return "depth." + owner + "." + which;
  }

  template <class T>
  void initialise(int k) {
    const AggregateParameters own = aggregate(k);
    const auto width = static_cast<std::size_t>(config.width);
    std::fill_n(elements<T>(own.gain), width, T(1));
    if (config.query_init == QueryInit::normal) {
      const CounterRng rng(config.seed, name(k, "query"));
      fill_normal(rng, 0.0, config.query_stddev, std::span<T>(elements<T>(own.query), width));
    } else {
      std::fill_n(elements<T>(own.query), width, T(0));
    }
  }
};

DepthParameters::DepthParameters(const DepthConfig& config, const ChunkRange& chunk)
    : state_(std::make_unique<State>()) {
  validate(config);
  static_cast<void>(chunk_depth(config, chunk));  // refuses an illegal range
  state_->config = config;
  state_->chunk = chunk;
  state_->has_head = chunk.has_head && config.head_aggregate;
  const Storage storage = gradient_storage(config.storage);
  const std::size_t bytes = static_cast<std::size_t>(num_values()) * bytes_per_element(storage);
  state_->values.resize(bytes);
  state_->gradients.resize(bytes);
  for (int k = 0; k < state_->num_aggregates(); ++k) {
    if (storage == Storage::fp64) {
      state_->initialise<double>(k);
    } else {
      state_->initialise<float>(k);
    }
  }
}

DepthParameters::~DepthParameters() = default;
DepthParameters::DepthParameters(DepthParameters&&) noexcept = default;
DepthParameters& DepthParameters::operator=(DepthParameters&&) noexcept = default;

const DepthConfig& DepthParameters::config() const { return state_->config; }
const ChunkRange& DepthParameters::chunk() const { return state_->chunk; }
bool DepthParameters::has_head() const { return state_->has_head; }

std::int64_t DepthParameters::num_values() const { return 2 * state_->num_aggregates() * state_->config.width; }

void DepthParameters::for_each(const std::function<void(const DepthParameter&)>& visit) const {
  for (int k = 0; k < state_->num_aggregates(); ++k) {
    const AggregateParameters own = state_->aggregate(k);
    visit({state_->name(k, "query"), own.query, own.query_gradient});
    visit({state_->name(k, "gain"), own.gain, own.gain_gradient});
  }
}

AggregateParameters DepthParameters::sublayer(int index) const {
  if (index < 0 || index >= state_->chunk.count) {
    throw std::out_of_range("depth parameters: sublayer " + std::to_string(index) + " of a chunk of " +
                            std::to_string(state_->chunk.count));
  }
  return state_->aggregate(index);
}

AggregateParameters DepthParameters::head() const {
  if (!state_->has_head) {
    throw std::logic_error("depth parameters: this chunk has no aggregate for the head");
  }
  return state_->aggregate(state_->chunk.count);
}

void DepthParameters::zero_gradients() { std::fill(state_->gradients.begin(), state_->gradients.end(), std::byte{0}); }

}  // namespace plumb

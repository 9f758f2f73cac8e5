// SPDX-License-Identifier: Apache-2.0
#include "our_block.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include <malloc.h>

#include "plumb/kernels/block_machine.hpp"

namespace plumb::bench {
namespace {

DepthConfig config_of(const BlockShape& shape) {
  DepthConfig config;
  config.num_sublayers = shape.num_sources * shape.num_sublayers;
  config.block_length = shape.num_sublayers;
  config.width = shape.width;
  config.eps = shape.eps;
  config.head_aggregate = false;
  return config;
}

// The last block of a model whose earlier ones, with the embedding, are the sources.
ChunkRange range_of(const BlockShape& shape) {
  return {(shape.num_sources - 1) * shape.num_sublayers, shape.num_sublayers, false};
}

std::vector<float> copied(const void* rows, std::int64_t count) {
  const float* const first = static_cast<const float*>(rows);
  return {first, first + count};
}

// Answers with given rows.
class GivenSublayer : public Sublayer {
 public:
  const float* output = nullptr;
  const float* grad_h = nullptr;
  Steps* steps = nullptr;
  std::vector<float>* h_seen = nullptr;
  std::vector<float>* df_seen = nullptr;

  void forward(TapeId, ConstView h, View f, Keep) override {
    steps->lap();
    if (h_seen != nullptr) *h_seen = copied(h.data, h.num_elements());
    std::memcpy(f.data, output, static_cast<std::size_t>(f.num_elements()) * sizeof(float));
    steps->skip();
  }
  void backward(TapeId, ConstView df, View dh) override {
    steps->lap();
    if (df_seen != nullptr) *df_seen = copied(df.data, df.num_elements());
    std::memcpy(dh.data, grad_h, static_cast<std::size_t>(dh.num_elements()) * sizeof(float));
    steps->skip();
  }
  void drop(TapeId) override {}
};

}  // namespace

struct OurBlock::State {
  State(const BlockData& data_in, std::int64_t tokens_in, bool with_backward)
      : data(data_in),
        tokens(tokens_in),
        values(tokens * data.shape.width),
        parameters(config_of(data.shape), range_of(data.shape)),
        given(static_cast<std::size_t>(data.shape.num_sublayers)),
        closed(static_cast<std::size_t>(values) * sizeof(float)) {
    std::vector<Sublayer*> sublayers;
    for (std::size_t l = 0; l < given.size(); ++l) {
      given[l].output = data.outputs[l].as<float>();
      given[l].grad_h = data.grad_h[l].as<float>();
      sublayers.push_back(&given[l]);
      const AggregateParameters own = parameters.sublayer(static_cast<int>(l));
      std::memcpy(own.query.data, data.queries[l].as<float>(), data.queries[l].bytes());
      std::memcpy(own.gain.data, data.gains[l].as<float>(), data.gains[l].bytes());
    }
    for (const Lines& each : data.sources) {
      sources.push_back(each.as<float>());
    }
    if (with_backward) {
      for (std::size_t i = 0; i <= sources.size(); ++i) {
        accumulators.emplace_back(static_cast<std::size_t>(values) * sizeof(float));
      }
    }
    machine = std::make_unique<BlockMachine>(config_of(data.shape), range_of(data.shape), sublayers, parameters);
  }

  void forward(Steps& steps, BlockResults* results, ForwardKind kind) {
    if (results != nullptr) {
      results->h.resize(given.size());
      results->grad_outputs.resize(given.size());
    }
    for (std::size_t l = 0; l < given.size(); ++l) {
      given[l].steps = &steps;
      given[l].h_seen = results == nullptr ? nullptr : &results->h[l];
      given[l].df_seen = results == nullptr ? nullptr : &results->grad_outputs[l];
    }
    void* const slot = closed.as<float>();
    MachineForward args;
    args.tokens = tokens;
    args.sources = sources;
    args.closed = {&slot, 1};
    args.kind = kind;
    steps.start();
    machine->forward(TapeId{1}, args);
    steps.lap();
    if (results != nullptr) results->closed = {copied(closed.as<float>(), values)};
  }

  const BlockData& data;
  std::int64_t tokens;
  std::int64_t values;
  DepthParameters parameters;
  std::vector<GivenSublayer> given;
  Lines closed;
  std::vector<const void*> sources;
  std::vector<Lines> accumulators;  // of the sources, then of the closed block
  std::unique_ptr<BlockMachine> machine;
};

OurBlock::OurBlock(const BlockData& data, std::int64_t tokens, bool with_backward)
    : state_(std::make_unique<State>(data, tokens, with_backward)) {}
OurBlock::~OurBlock() = default;

void OurBlock::forward(Steps& steps, BlockResults* results) { state_->forward(steps, results, ForwardKind::evaluate); }

void OurBlock::train(Steps& steps, BlockResults* results) {
  State& s = *state_;
  const auto bytes = static_cast<std::size_t>(s.values) * sizeof(float);
  float* const sum_of_closed = s.accumulators.back().as<float>();
  std::memcpy(sum_of_closed, s.data.grad_closed.as<float>(), bytes);
  s.parameters.zero_gradients();
  s.forward(steps, results, ForwardKind::train);

  const void* const closed = s.closed.as<float>();
  const BlockGradient grad_closed{sum_of_closed, false};
  std::vector<BlockGradient> grad_sources;
  for (std::size_t i = 0; i < s.sources.size(); ++i) {
    grad_sources.push_back({s.accumulators[i].as<float>(), true});
  }
  MachineBackward args;
  args.sources = s.sources;
  args.closed = {&closed, 1};
  args.grad_closed = {&grad_closed, 1};
  args.grad_sources = grad_sources;
  steps.skip();
  s.machine->backward(TapeId{1}, args);
  steps.lap();
  if (results == nullptr) return;
  for (const BlockGradient& each : grad_sources) {
    results->grad_sources.push_back(copied(each.sum, s.values));
  }
  for (int l = 0; l < s.data.shape.num_sublayers; ++l) {
    const AggregateParameters own = s.parameters.sublayer(l);
    results->grad_queries.push_back(copied(own.query_gradient.data, s.data.shape.width));
    results->grad_gains.push_back(copied(own.gain_gradient.data, s.data.shape.width));
  }
}

std::size_t allocated_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

}  // namespace plumb::bench

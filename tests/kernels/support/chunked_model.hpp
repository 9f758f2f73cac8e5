// SPDX-License-Identifier: Apache-2.0
// chunked_model.hpp: a whole model cut into chunks, each run by a block machine, in one process.
//
// Blocks, partials and accumulators live here as a runtime would keep them; every output is poisoned before a call.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/support/naive.hpp"
#include "kernels/support/test_sublayer.hpp"
#include "plumb/kernels/block_machine.hpp"

namespace plumb::testing {

struct ModelSpec {
  DepthConfig config;
  std::vector<int> cuts;  ///< end of each chunk, the last is L
  std::int64_t tokens = 1;
  LayerKind kind = LayerKind::tanh;
  double norm_eps = 1e-6;
  bool recompute = false;
  int query_batch = 8;
  bool split = false;  ///< backward as input, then weight
};

template <class T>
class ChunkedModel {
 public:
  explicit ChunkedModel(ModelSpec spec_in) : spec(std::move(spec_in)) {
    spec.config.storage = kStorage<T>;
    for (int i = 0; i < spec.config.num_sublayers; ++i) {
      sublayers.push_back(std::make_unique<TestSublayer<T>>("sublayer." + std::to_string(i), spec.config.width,
                                                            spec.kind, spec.norm_eps));
    }
    MachineOptions options;
    options.recompute = spec.recompute;
    options.query_batch = spec.query_batch;
    options.workspace = make_depth_workspace();
    int first = 0;
    for (std::size_t c = 0; c < spec.cuts.size(); ++c) {
      const ChunkRange range{first, spec.cuts[c] - first, c + 1 == spec.cuts.size()};
      parameters.push_back(std::make_unique<DepthParameters>(spec.config, range));
      std::vector<Sublayer*> own;
      for (int i = first; i < spec.cuts[c]; ++i) {
        own.push_back(sublayers[static_cast<std::size_t>(i)].get());
      }
      machines.push_back(std::make_unique<BlockMachine>(spec.config, range, own, *parameters.back(), options));
      first = spec.cuts[c];
    }
    blocks.resize(static_cast<std::size_t>(num_blocks(spec.config)) + 1);
    blocks[0] = random_rows<T>("b_0", size());
    partials.resize(spec.cuts.size());
  }

  /// Gains away from one, so that a mistake in the folding shows. Queries are the configuration's.
  void perturb_gains() {
    visit([](const DepthParameter& each) {
      if (each.name.ends_with(".gain")) {
        const Rows<T> noise = random_rows<T>(each.name, each.value.width, 0.3, 1.0);
        std::copy(noise.begin(), noise.end(), elements<T>(each.value));
      }
    });
  }

  std::int64_t size() const { return spec.tokens * spec.config.width; }
  bool has_head() const { return spec.config.head_aggregate; }

  void forward(TapeId tape = {}, ForwardKind kind = ForwardKind::train) {
    for (std::size_t c = 0; c < machines.size(); ++c) {
      const ChunkDepth& depth = machines[c]->depth();
      std::vector<const void*> sources;
      for (int n = 0; n < depth.num_sources; ++n) {
        sources.push_back(blocks[static_cast<std::size_t>(n)].data());
      }
      std::vector<void*> closed;
      for (int n = 0; n < depth.num_closed; ++n) {
        Rows<T>& block = blocks[static_cast<std::size_t>(depth.num_sources + n)];
        block = poison<T>(size());
        closed.push_back(block.data());
      }
      MachineForward args;
      args.tokens = spec.tokens;
      args.sources = sources;
      args.closed = closed;
      args.kind = kind;
      if (depth.partial_in) {
        args.partial_in = partials[c - 1].data();
      }
      if (depth.partial_out) {
        partials[c] = poison<T>(size());
        args.partial_out = partials[c].data();
      }
      if (machines[c]->chunk().has_head && has_head()) {
        head = poison<T>(size());
        args.head = head.data();
      }
      machines[c]->forward(tape, args);
    }
  }

  /// Gradients of the loss by the head's aggregate and, where given, by each block directly.
  void backward(const Rows<T>& grad_head, const std::vector<Rows<T>>& external = {}, TapeId tape = {}) {
    std::vector<bool> touched(blocks.size(), !external.empty());
    block_gradients = external;
    block_gradients.resize(blocks.size());
    for (std::size_t n = 0; n < blocks.size(); ++n) {
      if (!touched[n]) {
        block_gradients[n] = poison<T>(size());
      }
    }
    Rows<T> grad_partial_out;
    for (std::size_t c = machines.size(); c-- > 0;) {
      const ChunkDepth& depth = machines[c]->depth();
      const auto num_sources = static_cast<std::size_t>(depth.num_sources);
      std::vector<const void*> sources;
      std::vector<const void*> closed;
      std::vector<BlockGradient> grad_sources;
      std::vector<BlockGradient> grad_closed;
      for (std::size_t n = 0; n < num_sources + static_cast<std::size_t>(depth.num_closed); ++n) {
        (n < num_sources ? sources : closed).push_back(blocks[n].data());
        (n < num_sources ? grad_sources : grad_closed).push_back({block_gradients[n].data(), !touched[n]});
        touched[n] = true;
      }
      MachineBackward args;
      args.sources = sources;
      args.closed = closed;
      args.grad_sources = grad_sources;
      args.grad_closed = grad_closed;
      Rows<T> grad_partial_in;
      if (depth.partial_in) {
        args.partial_in = partials[c - 1].data();
        grad_partial_in = poison<T>(size());
        args.grad_partial_in = grad_partial_in.data();
      }
      if (depth.partial_out) {
        args.grad_partial_out = grad_partial_out.data();
      }
      if (machines[c]->chunk().has_head && has_head()) {
        args.grad_head = grad_head.data();
      }
      if (spec.split) {
        machines[c]->backward_input(tape, args);
        machines[c]->backward_weight(tape);
      } else {
        machines[c]->backward(tape, args);
      }
      grad_partial_out = grad_partial_in;
    }
  }

  void visit(const std::function<void(const DepthParameter&)>& visitor) {
    for (const auto& own : parameters) {
      own->for_each(visitor);
    }
  }

  void zero_gradients() {
    for (const auto& own : parameters) {
      own->zero_gradients();
    }
    for (const auto& own : sublayers) {
      own->gradient = zeros<T>(static_cast<std::int64_t>(own->gradient.size()));
    }
  }

  /// All gradients by name: depth parameters, sublayer weights, b_0.
  std::map<std::string, Rows<T>> gradients() {
    std::map<std::string, Rows<T>> out;
    visit([&](const DepthParameter& each) {
      const T* data = elements<T>(each.gradient);
      out[each.name] = Rows<T>(data, data + each.gradient.width);
    });
    for (std::size_t i = 0; i < sublayers.size(); ++i) {
      out["weight." + std::to_string(i)] = sublayers[i]->gradient;
    }
    out["b_0"] = block_gradients[0];
    return out;
  }

  /// The values the gradients belong to, writable.
  std::map<std::string, std::span<T>> values() {
    std::map<std::string, std::span<T>> out;
    visit([&](const DepthParameter& each) {
      out[each.name] = {elements<T>(each.value), static_cast<std::size_t>(each.value.width)};
    });
    for (std::size_t i = 0; i < sublayers.size(); ++i) {
      out["weight." + std::to_string(i)] = sublayers[i]->weight;
    }
    out["b_0"] = blocks[0];
    return out;
  }

  /// The definition, sublayer by sublayer, without chunks, phases or the library's operators. Needs this model's
  /// parameters and b_0 only; returns b_0 .. b_N and, if configured, the head's aggregate behind them.
  std::vector<Rows<double>> naive_forward() {
    const auto value = values();
    const DepthConfig& config = spec.config;
    const NaiveAggregate aggregate{spec.tokens, config.width, config.eps};
    const auto parameter = [&](const std::string& name) {
      const std::span<T> data = value.at(name);
      return Rows<double>(data.begin(), data.end());
    };
    std::vector<Rows<double>> closed{convert<double>(blocks[0])};
    Rows<double> partial;
    for (int i = 0; i < config.num_sublayers; ++i) {
      std::vector<Rows<double>> sources = closed;
      if (!partial.empty()) {
        sources.push_back(partial);
      }
      const std::string name = "depth." + std::to_string(i);
      const Rows<double> h = aggregate(sources, parameter(name + ".query"), parameter(name + ".gain")).h;
      const Rows<T> f = sublayers[static_cast<std::size_t>(i)]->apply(convert<T>(h), spec.tokens);
      if (partial.empty()) {
        partial = zeros<double>(size());
      }
      for (std::size_t k = 0; k < partial.size(); ++k) {
        partial[k] += static_cast<double>(f[k]);
      }
      if ((i + 1) % config.block_length == 0 || i + 1 == config.num_sublayers) {
        closed.push_back(partial);
        partial.clear();
      }
    }
    if (has_head()) {
      closed.push_back(aggregate(closed, parameter("depth.head.query"), parameter("depth.head.gain")).h);
    }
    return closed;
  }

  ModelSpec spec;
  std::vector<std::unique_ptr<TestSublayer<T>>> sublayers;
  std::vector<std::unique_ptr<DepthParameters>> parameters;
  std::vector<std::unique_ptr<BlockMachine>> machines;
  std::vector<Rows<T>> blocks;
  std::vector<Rows<T>> partials;  ///< behind chunk c, where there is one
  std::vector<Rows<T>> block_gradients;
  Rows<T> head;
};

}  // namespace plumb::testing

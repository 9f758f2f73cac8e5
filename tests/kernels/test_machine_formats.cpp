// SPDX-License-Identifier: Apache-2.0
// The block machine with values in short formats: bits that may not depend on cuts, threads, recomputation or query
// batches, and closeness to the same model in fp64.
#include <map>
#include <memory>

#include "kernels/support/cpu_case.hpp"
#include "plumb/kernels/block_machine.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

/// f = a h element by element, rounded to the format of f; keeps nothing.
template <class V>
class Scaling final : public Sublayer {
 public:
  explicit Scaling(int number, std::int64_t width)
      : factors_(random_rows<float>("factors " + std::to_string(number), width, 0.3, 0.8)) {}

  void forward(TapeId, ConstView h, View f, Keep) override {
    for (std::int64_t k = 0; k < h.num_elements(); ++k) {
      const double value = static_cast<double>(factor(k)) * wide(elements<V>(h)[k]);
      elements<V>(f)[k] = stored<V>(value);
    }
  }
  void backward(TapeId, ConstView df, View dh) override {
    using A = std::conditional_t<sizeof(V) == 8, double, float>;
    for (std::int64_t k = 0; k < df.num_elements(); ++k) {
      elements<A>(dh)[k] = static_cast<A>(factor(k)) * elements<A>(df)[k];
    }
  }
  void drop(TapeId) override {}

 private:
  static double wide(V value) {
    if constexpr (sizeof(V) == 8) {
      return value;
    } else {
      return static_cast<double>(widened(value));
    }
  }
  float factor(std::int64_t k) const { return factors_[static_cast<std::size_t>(k) % factors_.size()]; }

  Rows<float> factors_;
};

struct Plan {
  std::vector<int> cuts;
  int num_threads = 1;
  bool recompute = false;
  int query_batch = 8;
};

template <class V>
struct Result {
  std::vector<Rows<V>> blocks;
  Rows<V> head;
  std::map<std::string, Rows<double>> gradients;
};

/// One forward and backward of a model of twelve sublayers in blocks of three, or in full mode.
template <class V>
Result<V> train(const Plan& plan, DepthMode mode = DepthMode::block) {
  using A = std::conditional_t<sizeof(V) == 8, double, float>;
  DepthConfig config;
  config.num_sublayers = 12;
  config.mode = mode;
  config.block_length = mode == DepthMode::full ? 1 : 3;
  config.schedule_length = 4;
  config.width = 40;
  if constexpr (sizeof(V) == 8) {
    config.storage = Storage::fp64;
  } else {
    config.storage = kFormat<V>;
  }
  config.query_init = QueryInit::normal;
  config.query_stddev = 0.3;
  const std::int64_t tokens = 600;
  const std::int64_t size = tokens * config.width;
  const auto workspace = make_depth_workspace(plan.num_threads);
  std::vector<std::unique_ptr<Scaling<V>>> sublayers;
  std::vector<std::unique_ptr<DepthParameters>> parameters;
  std::vector<std::unique_ptr<BlockMachine>> machines;
  int first = 0;
  for (const int cut : plan.cuts) {
    const ChunkRange range{first, cut - first, cut == config.num_sublayers};
    parameters.push_back(std::make_unique<DepthParameters>(config, range));
    std::vector<Sublayer*> own;
    for (int i = first; i < cut; ++i) {
      sublayers.push_back(std::make_unique<Scaling<V>>(i, config.width));
      own.push_back(sublayers.back().get());
    }
    machines.push_back(std::make_unique<BlockMachine>(config, range, own, *parameters.back(),
                                                      MachineOptions{plan.recompute, plan.query_batch, workspace}));
    first = cut;
  }
  Result<V> out;
  const Rows<float> embedding = random_rows<float>("embedding", size);
  out.blocks.emplace_back();
  for (const float each : embedding) {
    out.blocks[0].push_back(stored<V>(static_cast<double>(to_float(to_bf16(each)))));
  }
  out.head = Rows<V>(static_cast<std::size_t>(size));
  std::vector<Rows<V>> partials(machines.size(), Rows<V>(static_cast<std::size_t>(size)));
  for (std::size_t c = 0; c < machines.size(); ++c) {
    const ChunkDepth& depth = machines[c]->depth();
    MachineForward args;
    args.tokens = tokens;
    std::vector<const void*> sources;
    for (const Rows<V>& each : out.blocks) {
      sources.push_back(each.data());
    }
    std::vector<void*> closed;
    const std::size_t closed_before = out.blocks.size();
    out.blocks.resize(closed_before + static_cast<std::size_t>(depth.num_closed), Rows<V>(out.head.size()));
    for (std::size_t n = 0; n < out.blocks.size(); ++n) {
      n < closed_before ? static_cast<void>(sources[n] = out.blocks[n].data()) : closed.push_back(out.blocks[n].data());
    }
    args.sources = sources;
    args.closed = closed;
    args.partial_in = depth.partial_in ? partials[c - 1].data() : nullptr;
    args.partial_out = depth.partial_out ? partials[c].data() : nullptr;
    args.head = machines[c]->chunk().has_head ? out.head.data() : nullptr;
    machines[c]->forward({}, args);
  }
  const Rows<A> grad_head = convert<A>(random_rows<float>("grad head", size));
  std::vector<Rows<A>> sums(out.blocks.size(), poison<A>(size));
  std::vector<bool> touched(sums.size(), false);
  Rows<A> grad_partial;
  for (std::size_t c = machines.size(); c-- > 0;) {
    const ChunkDepth& depth = machines[c]->depth();
    std::vector<const void*> values;
    std::vector<BlockGradient> gradients;
    const auto total = static_cast<std::size_t>(depth.num_sources + depth.num_closed);
    for (std::size_t n = 0; n < total; ++n) {
      values.push_back(out.blocks[n].data());
      gradients.push_back({sums[n].data(), !touched[n]});
      touched[n] = true;
    }
    const auto split = static_cast<std::size_t>(depth.num_sources);
    Rows<A> grad_in = poison<A>(size);
    MachineBackward args;
    args.sources = std::span(values).first(split);
    args.closed = std::span(values).subspan(split);
    args.grad_sources = std::span(gradients).first(split);
    args.grad_closed = std::span(gradients).subspan(split);
    args.partial_in = depth.partial_in ? partials[c - 1].data() : nullptr;
    args.grad_partial_in = depth.partial_in ? grad_in.data() : nullptr;
    args.grad_partial_out = depth.partial_out ? grad_partial.data() : nullptr;
    args.grad_head = machines[c]->chunk().has_head ? grad_head.data() : nullptr;
    machines[c]->backward({}, args);
    grad_partial = grad_in;
  }
  out.gradients["b_0"] = Rows<double>(sums[0].begin(), sums[0].end());
  for (const auto& own : parameters) {
    own->for_each([&](const DepthParameter& each) {
      const A* data = elements<A>(each.gradient);
      out.gradients[each.name] = Rows<double>(data, data + each.gradient.width);
    });
  }
  return out;
}

template <class V>
bool same_forward(const Result<V>& a, const Result<V>& b) {
  bool same = a.blocks.size() == b.blocks.size() && same_rows(a.head, b.head);
  for (std::size_t n = 0; same && n < a.blocks.size(); ++n) {
    same = same_rows(a.blocks[n], b.blocks[n]);
  }
  return same;
}

template <class V>
void check_bits(DepthMode mode) {
  const Result<V> whole = train<V>({{12}}, mode);
  CHECK(same_forward(whole, train<V>({{1, 2, 5, 6, 9, 11, 12}}, mode)));
  CHECK(same_forward(whole, train<V>({{4, 4, 10, 12}}, mode)));
  for (const Plan& plan : {Plan{{12}, 2}, Plan{{12}, 1, true}, Plan{{12}, 3, true, 2}, Plan{{12}, 1, false, 1}}) {
    const Result<V> other = train<V>(plan, mode);
    CHECK(same_forward(whole, other));
    CHECK(whole.gradients == other.gradients);
  }
}

}  // namespace

TEST_CASE("short formats give the same bits for any cuts, threads, batches and recomputation", "[kernels]") {
  for (const DepthMode mode : {DepthMode::block, DepthMode::full}) {
    check_bits<Bf16>(mode);
    check_bits<Fp16>(mode);
    check_bits<float>(mode);
  }
}

TEST_CASE("a model in short formats is the fp64 model up to the rounding of its values", "[kernels]") {
  for (const DepthMode mode : {DepthMode::block, DepthMode::full}) {
    const Result<double> exact = train<double>({{5, 12}}, mode);
    const auto check = [&]<class V>(double values, double gradients) {
      const Result<V> got = train<V>({{5, 12}}, mode);
      CHECK(relative_l2(to_double(got.head), exact.head) < values);
      for (const auto& [name, gradient] : exact.gradients) {
        INFO(name);
        double scale = 0;
        for (const double each : gradient) {
          scale = std::max(scale, std::abs(each));
        }
        if (scale > 0) {
          CHECK(relative_l2(got.gradients.at(name), gradient) < gradients);
        } else {
          CHECK(got.gradients.at(name) == gradient);
        }
      }
    };
    check.template operator()<float>(1e-6, 1e-4);
    check.template operator()<Fp16>(1e-3, 2e-2);
    check.template operator()<Bf16>(8e-3, 1e-1);
  }
}

// SPDX-License-Identifier: Apache-2.0
// The machine as a whole: against the definition, against finite differences, and against itself cut differently.
#include "kernels/support/random_spec.hpp"
#include "plumb/kernels/block_machine.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

template <class T>
Rows<T> head_gradient(const ModelSpec& spec) {
  return random_rows<T>("grad head", spec.tokens * spec.config.width);
}

/// A gradient that reaches each block from outside all chunks, as the sums of later ranks do.
template <class T>
std::vector<Rows<T>> external_gradients(const ModelSpec& spec) {
  std::vector<Rows<T>> out;
  for (int n = 0; n <= num_blocks(spec.config); ++n) {
    out.push_back(random_rows<T>("external " + std::to_string(n), spec.tokens * spec.config.width));
  }
  return out;
}

template <class T>
struct Outcome {
  std::vector<Rows<T>> blocks;
  Rows<T> head;
  std::map<std::string, Rows<T>> gradients;
};

template <class T>
Outcome<T> train_once(const ModelSpec& spec, bool external) {
  ChunkedModel<T> model(spec);
  model.perturb_gains();
  model.forward();
  model.backward(head_gradient<T>(spec), external ? external_gradients<T>(spec) : std::vector<Rows<T>>{});
  for (const auto& machine : model.machines) {
    CHECK(machine->num_tapes() == 0);
  }
  for (const auto& sublayer : model.sublayers) {
    CHECK(sublayer->num_kept() == 0);
  }
  return {model.blocks, model.head, model.gradients()};
}

template <class T>
bool same_forward(const Outcome<T>& a, const Outcome<T>& b) {
  for (std::size_t n = 0; n < a.blocks.size(); ++n) {
    if (!same_bits(a.blocks[n], b.blocks[n])) {
      return false;
    }
  }
  return a.blocks.size() == b.blocks.size() && same_bits(a.head, b.head);
}

template <class T>
bool same_gradients(const Outcome<T>& a, const Outcome<T>& b) {
  for (const auto& [name, gradient] : a.gradients) {
    if (!same_bits(gradient, b.gradients.at(name))) {
      return false;
    }
  }
  return true;
}

/// max |a - b| over each parameter, relative to the parameter's largest gradient, but not to less than 1e-3 of the
/// largest of all: a gradient that is zero but for rounding has no digits to agree in.
template <class T>
double gradient_difference(const Outcome<T>& a, const Outcome<T>& b) {
  const auto largest = [](const Rows<T>& rows) {
    double out = 0;
    for (const T value : rows) {
      out = std::max(out, std::abs(static_cast<double>(value)));
    }
    return out;
  };
  double overall = 0;
  for (const auto& [name, gradient] : b.gradients) {
    overall = std::max(overall, largest(gradient));
  }
  double worst = 0;
  for (const auto& [name, gradient] : b.gradients) {
    const double scale = std::max(largest(gradient), 1e-3 * overall);
    worst = std::max(worst, relative_difference(a.gradients.at(name), gradient) * largest(gradient) / scale);
  }
  return worst;
}

}  // namespace

TEMPLATE_TEST_CASE("blocks and head equal the definition for any model and cuts", "[kernels]", float, double) {
  for (std::uint64_t trial = 0; trial < 150; ++trial) {
    Dice dice(trial);
    ModelSpec spec = random_spec(dice);
    spec.config.eps = 1e-3;  // a row of width 1 near zero amplifies rounding by up to 1/sqrt(eps)
    spec.norm_eps = 1e-3;
    spec.cuts = random_cuts(dice, spec.config.num_sublayers);
    ChunkedModel<TestType> model(spec);
    model.perturb_gains();
    model.forward();
    const std::vector<Rows<double>> expected = model.naive_forward();
    INFO("trial " << trial << ": " << describe(spec));
    const double bound = sizeof(TestType) == 8 ? 1e-12 : 2e-5;
    for (std::size_t n = 0; n < model.blocks.size(); ++n) {
      CHECK(relative_difference(model.blocks[n], expected[n]) <= bound);
    }
    if (model.has_head()) {
      CHECK(relative_difference(model.head, expected.back()) <= bound);
    }
  }
}

TEST_CASE("the whole machine agrees with finite differences to 1e-7", "[kernels]") {
  double worst = 0;
  for (std::uint64_t trial = 0; trial < 40; ++trial) {
    Dice dice(1000 + trial);
    ModelSpec spec = random_spec(dice);
    if (trial >= 10) {
      spec.tokens = std::min<std::int64_t>(spec.tokens, 5);  // the first trials hold one with several runs of tokens
    }
    spec.config.eps = 1e-1;  // smooth enough for differences
    spec.norm_eps = 1e-1;
    spec.cuts = random_cuts(dice, spec.config.num_sublayers);
    spec.recompute = dice.between(0, 1) == 1;
    spec.split = dice.between(0, 1) == 1;
    ChunkedModel<double> model(spec);
    model.perturb_gains();
    const Rows<double> grad_head = head_gradient<double>(spec);
    const std::vector<Rows<double>> external = external_gradients<double>(spec);
    model.forward();
    model.backward(grad_head, external);
    const auto analytic = model.gradients();

    const auto loss = [&] {
      model.forward({}, ForwardKind::evaluate);
      double sum = 0;
      for (std::size_t n = 0; n < external.size(); ++n) {
        for (std::size_t i = 0; i < external[n].size(); ++i) {
          sum += external[n][i] * model.blocks[n][i];
        }
      }
      for (std::size_t i = 0; i < model.head.size(); ++i) {
        sum += grad_head[i] * model.head[i];
      }
      return sum;
    };
    double scale = 0;
    double error = 0;
    for (const auto& [name, values] : model.values()) {
      const std::size_t stride = 1 + values.size() / 5;
      for (std::size_t i = 0; i < values.size(); i += stride) {
        constexpr double kStep = 1e-4;
        const double at = values[i];
        const auto loss_at = [&](double offset) {
          values[i] = at + offset;
          return loss();
        };
        const double numeric =
            (8 * (loss_at(kStep) - loss_at(-kStep)) - (loss_at(2 * kStep) - loss_at(-2 * kStep))) / (12 * kStep);
        values[i] = at;
        scale = std::max(scale, std::abs(analytic.at(name)[i]));
        error = std::max(error, std::abs(numeric - analytic.at(name)[i]));
      }
    }
    INFO("trial " << trial << ": " << describe(spec));
    CHECK(error <= 1e-7 * scale);
    worst = std::max(worst, error / scale);
  }
  INFO("worst " << worst);
  CHECK(worst < 1e-7);
}

TEMPLATE_TEST_CASE("any cuts give the same forward bits and the same gradients", "[kernels]", float, double) {
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    Dice dice(2000 + trial);
    ModelSpec spec = random_spec(dice);
    spec.config.eps = 1e-2;
    spec.norm_eps = 1e-2;
    const bool external = !spec.config.head_aggregate || dice.between(0, 1) == 1;
    const Outcome<TestType> whole = train_once<TestType>(spec, external);
    ModelSpec cut = spec;
    cut.cuts = random_cuts(dice, spec.config.num_sublayers);
    cut.recompute = dice.between(0, 1) == 1;
    cut.split = dice.between(0, 1) == 1;
    cut.query_batch = dice.between(1, 5);
    const Outcome<TestType> pieces = train_once<TestType>(cut, external);
    INFO("trial " << trial << ": " << describe(cut));
    CHECK(same_forward(whole, pieces));
    CHECK(gradient_difference(pieces, whole) <= (sizeof(TestType) == 8 ? 1e-12 : 3e-4));
  }
}

TEMPLATE_TEST_CASE("recomputation, split backward and query batch change no bit", "[kernels]", float, double) {
  for (std::uint64_t trial = 0; trial < 60; ++trial) {
    Dice dice(3000 + trial);
    ModelSpec spec = random_spec(dice);
    spec.cuts = random_cuts(dice, spec.config.num_sublayers);
    const bool external = !spec.config.head_aggregate || dice.between(0, 1) == 1;
    const Outcome<TestType> plain = train_once<TestType>(spec, external);
    INFO("trial " << trial << ": " << describe(spec));
    CHECK((same_forward(train_once<TestType>(spec, external), plain)));
    ModelSpec other = spec;
    other.recompute = true;
    const Outcome<TestType> recomputed = train_once<TestType>(other, external);
    CHECK(same_forward(recomputed, plain));
    CHECK(same_gradients(recomputed, plain));
    other.split = true;
    CHECK(same_gradients(train_once<TestType>(other, external), plain));
    other.query_batch = 16;
    CHECK(same_gradients(train_once<TestType>(other, external), plain));
  }
}

TEST_CASE("full mode by schedule blocks equals blocks of one sublayer", "[kernels]") {
  for (const int schedule_length : {1, 2, 3, 4, 100}) {
    ModelSpec spec;
    spec.config.num_sublayers = 9;
    spec.config.width = 6;
    spec.config.query_init = QueryInit::normal;
    spec.config.query_stddev = 0.7;
    spec.tokens = 3;
    spec.cuts = {4, 9};
    const Outcome<double> block = train_once<double>(spec, false);
    spec.config.mode = DepthMode::full;
    spec.config.schedule_length = schedule_length;
    const Outcome<double> full = train_once<double>(spec, false);
    CHECK(relative_difference(full.head, block.head) < 1e-12);
    CHECK(gradient_difference(full, block) < 1e-12);
  }
}

TEST_CASE("many tapes in flight do not disturb each other", "[kernels]") {
  for (const bool recompute : {false, true}) {
    ModelSpec spec;
    spec.config.num_sublayers = 5;
    spec.config.block_length = 3;
    spec.config.width = 4;
    spec.config.query_init = QueryInit::normal;
    spec.config.query_stddev = 0.7;
    spec.tokens = 2;
    spec.cuts = {5};
    spec.recompute = recompute;
    // One tape after the other, each with an embedding of its own ...
    ChunkedModel<double> model(spec);
    struct Kept {
      std::vector<Rows<double>> blocks;
      std::map<std::string, Rows<double>> gradients;
    };
    std::vector<Kept> alone;
    for (int k = 0; k < 3; ++k) {
      model.blocks[0] = random_rows<double>("embedding " + std::to_string(k), model.size());
      model.zero_gradients();
      model.forward(TapeId{k});
      model.backward(head_gradient<double>(spec), {}, TapeId{k});
      alone.push_back({model.blocks, model.gradients()});
    }
    // ... and all at once, finished in another order.
    std::vector<std::vector<Rows<double>>> blocks(3);
    for (int k = 0; k < 3; ++k) {
      model.blocks[0] = random_rows<double>("embedding " + std::to_string(k), model.size());
      model.forward(TapeId{k});
      blocks[static_cast<std::size_t>(k)] = model.blocks;
    }
    CHECK(model.machines[0]->num_tapes() == 3);
    for (const int k : {1, 2, 0}) {
      const Kept& expected = alone[static_cast<std::size_t>(k)];
      model.blocks = blocks[static_cast<std::size_t>(k)];
      model.zero_gradients();
      model.backward(head_gradient<double>(spec), {}, TapeId{k});
      for (const auto& [name, gradient] : model.gradients()) {
        CHECK(same_bits(gradient, expected.gradients.at(name)));
      }
    }
    CHECK(model.machines[0]->num_tapes() == 0);
  }
}

TEST_CASE("zero queries through scale-invariant layers are the standard residual network", "[kernels]") {
  const auto check = [](auto zero, double eps, double bound) {
    using T = decltype(zero);
    for (const int block_length : {1, 2, 3, 7, 12}) {
      ModelSpec spec;
      spec.config.num_sublayers = 12;
      spec.config.block_length = block_length;
      spec.config.width = 24;
      spec.config.eps = eps;
      spec.norm_eps = eps;
      spec.tokens = 6;
      spec.cuts = {5, 12};
      ChunkedModel<T> model(spec);
      model.forward();
      Rows<T> stream = model.blocks[0];
      for (const auto& sublayer : model.sublayers) {
        const Rows<T> f = sublayer->apply(stream, spec.tokens);
        for (std::size_t i = 0; i < stream.size(); ++i) {
          stream[i] += f[i];
        }
      }
      Rows<T> scaled = model.head;  // a mean of N+1 blocks instead of their sum
      for (T& value : scaled) {
        value *= static_cast<T>(model.blocks.size());
      }
      INFO("block length " << block_length);
      CHECK(relative_difference(scaled, stream) < bound);
    }
  };
  check(float{}, 1e-6, 1e-4);
  check(double{}, 1e-12, 1e-9);
}

TEST_CASE("queries learn from zero", "[kernels]") {
  ModelSpec spec;
  spec.config.num_sublayers = 4;
  spec.config.block_length = 2;
  spec.config.width = 5;
  spec.tokens = 3;
  spec.cuts = {4};
  const Outcome<double> outcome = train_once<double>(spec, false);
  for (const auto& [name, gradient] : outcome.gradients) {
    const bool gain = name.ends_with(".gain");
    const bool sole = name == "depth.0.query";
    INFO(name);
    CHECK((same_bits(gradient, zeros<double>(static_cast<std::int64_t>(gradient.size()))) == (gain || sole)));
  }
}

TEST_CASE("the first sublayer's query never learns, to the last bit", "[kernels]") {
  for (std::uint64_t trial = 0; trial < 20; ++trial) {
    Dice dice(4000 + trial);
    const ModelSpec spec = random_spec(dice);
    const Outcome<float> outcome = train_once<float>(spec, true);
    INFO(describe(spec));
    CHECK(same_bits(outcome.gradients.at("depth.0.query"), zeros<float>(spec.config.width)));
    CHECK(same_bits(outcome.gradients.at("depth.0.gain"), zeros<float>(spec.config.width)));
  }
}

TEST_CASE("blocks that nobody reads have zero gradients, not garbage", "[kernels]") {
  ModelSpec spec;
  spec.config.num_sublayers = 5;
  spec.config.block_length = 2;
  spec.config.width = 3;
  spec.config.head_aggregate = false;
  spec.tokens = 2;
  spec.cuts = {5};
  const Outcome<double> outcome = train_once<double>(spec, false);
  for (const auto& [name, gradient] : outcome.gradients) {
    INFO(name);
    CHECK(relative_difference(gradient, zeros<double>(static_cast<std::int64_t>(gradient.size()))) == 0);
  }
}

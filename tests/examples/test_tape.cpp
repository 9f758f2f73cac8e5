// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/ones_like.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include "train_lm/tape.hpp"

// Behind torch, which brings a CHECK of its own that ends the program.
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::lm;

namespace {

LmConfig small() {
  LmConfig config;
  config.num_sublayers = 2;
  config.width = 8;
  config.heads = 2;
  config.sequence = 4;
  config.sequences = 1;
  return config;
}

std::vector<float> ramp(std::size_t size, float scale) {
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) {
    values[i] = scale * static_cast<float>((i * 7) % 11) - 1;
  }
  return values;
}

std::vector<std::vector<float>> take_gradients(const Layer& layer) {
  std::vector<std::vector<float>> gradients;
  for (Parameter parameter : layer.parameters()) {
    const at::Tensor gradient = parameter.value.grad();
    gradients.emplace_back(gradient.data_ptr<float>(), gradient.data_ptr<float>() + gradient.numel());
    parameter.value.mutable_grad().zero_();
  }
  return gradients;
}

// Multiply-adds of the matrix products that torch really runs on this thread, while this object lives.
class CountedProducts {
 public:
  CountedProducts() {
    total_ = 0;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&CountedProducts::seen).needsInputs(true));
  }
  ~CountedProducts() { at::removeCallback(handle_); }
  CountedProducts(const CountedProducts&) = delete;
  CountedProducts& operator=(const CountedProducts&) = delete;
  std::int64_t multiply_adds() const { return total_; }

 private:
  static std::unique_ptr<at::ObserverContext> seen(const at::RecordFunction& call) {
    // Position of the left factor; all other products are made of these.
    static const std::map<std::string, std::size_t> products = {
        {"aten::mm", 0}, {"aten::bmm", 0}, {"aten::addmm", 1}, {"aten::addmm_", 1}, {"aten::baddbmm", 1}};
    const auto found = products.find(call.name());
    if (found != products.end()) {
      const at::Tensor left = call.inputs()[found->second].toTensor();
      const at::Tensor right = call.inputs()[found->second + 1].toTensor();
      total_ += left.numel() * right.size(-1);
    }
    return nullptr;
  }
  static thread_local std::int64_t total_;
  at::CallbackHandle handle_ = 0;
};
thread_local std::int64_t CountedProducts::total_ = 0;

struct Halves {
  std::int64_t input = 0;
  std::int64_t weight = 0;
};

// Multiply-adds of the two halves of one sublayer's backward.
Halves count_halves(const LmConfig& config, int index) {
  const auto layer = make_sublayer(config, index);
  TorchSublayer sublayer(*layer);
  const std::int64_t tokens = config.tokens();
  std::vector<float> h = ramp(static_cast<std::size_t>(tokens * config.width), 0.3F);
  std::vector<float> f(h.size());
  std::vector<float> df = ramp(h.size(), 0.1F);
  const auto view = [&](std::vector<float>& values) {
    return View{values.data(), tokens, config.width, Storage::fp32};
  };
  sublayer.forward({1}, view(h), view(f), Keep::for_backward);
  Halves halves;
  {
    const CountedProducts counted;
    sublayer.backward_input({1}, view(df), view(f));
    halves.input = counted.multiply_adds();
  }
  {
    const CountedProducts counted;
    sublayer.backward_weight({1});
    halves.weight = counted.multiply_adds();
  }
  return halves;
}

}  // namespace

TEST_CASE("a slot overwritten between forward and backward does not change the gradient", "[examples]") {
  const auto layer = make_sublayer(small(), 0);
  TorchSublayer sublayer(*layer);
  std::vector<float> h = ramp(32, 0.3F);
  std::vector<float> f(32);
  std::vector<float> df = ramp(32, 0.1F);
  std::vector<float> expected(32);
  std::vector<float> got(32);
  const auto view = [](std::vector<float>& values) { return View{values.data(), 4, 8, Storage::fp32}; };
  sublayer.forward({1}, view(h), view(f), Keep::for_backward);
  sublayer.backward({1}, view(df), view(expected));
  const auto expected_weights = take_gradients(*layer);
  sublayer.forward({1}, view(h), view(f), Keep::for_backward);
  h.assign(32, 99);
  f.assign(32, 99);
  sublayer.backward({1}, view(df), view(got));
  CHECK(got == expected);
  CHECK(take_gradients(*layer) == expected_weights);
}

TEST_CASE("a split backward gives the bits of a whole one", "[examples]") {
  const int index = GENERATE(0, 1);
  const auto layer = make_sublayer(small(), index);
  TorchSublayer sublayer(*layer);
  std::vector<float> h = ramp(32, 0.3F);
  std::vector<float> f(32);
  std::vector<float> df = ramp(32, 0.1F);
  std::vector<float> whole(32);
  std::vector<float> split(32);
  const auto view = [](std::vector<float>& values) { return View{values.data(), 4, 8, Storage::fp32}; };
  sublayer.forward({1}, view(h), view(f), Keep::for_backward);
  sublayer.backward({1}, view(df), view(whole));
  const auto weights = take_gradients(*layer);
  sublayer.forward({2}, view(h), view(f), Keep::for_backward);
  sublayer.backward_input({2}, view(df), view(split));
  df.assign(32, 99);
  sublayer.backward_weight({2});
  CHECK(split == whole);
  CHECK(take_gradients(*layer) == weights);
}

TEST_CASE("an evaluation keeps nothing and gives the bits of a training forward", "[examples]") {
  const auto layer = make_sublayer(small(), 1);
  TorchSublayer sublayer(*layer);
  std::vector<float> h = ramp(32, 0.3F);
  std::vector<float> trained(32);
  std::vector<float> evaluated(32);
  const auto view = [](std::vector<float>& values) { return View{values.data(), 4, 8, Storage::fp32}; };
  sublayer.forward({1}, view(h), view(trained), Keep::for_backward);
  sublayer.forward({2}, view(h), view(evaluated), Keep::nothing);
  CHECK(evaluated == trained);
  std::vector<float> unused(32);
  CHECK_THROWS(sublayer.backward({2}, view(h), view(unused)));
  sublayer.drop({1});
  sublayer.drop({1});
  CHECK_THROWS(sublayer.backward({1}, view(h), view(unused)));
}

TEST_CASE("W does the weight products and nothing else, at least a quarter of the backward's multiply-adds",
          "[examples]") {
  const LmConfig config;  // what plumb train runs by default
  const std::int64_t d = config.width;
  const std::int64_t h = config.mlp_width();
  const Halves attention = count_halves(config, 0);
  CHECK(attention.weight == config.tokens() * (3 * d * d + d * d));
  // The two weights of the forward again, and each of its two products over positions twice.
  CHECK(attention.input == config.tokens() * (3 * d * d + d * d + 4 * config.sequence * d));
  CHECK(4 * attention.weight >= attention.weight + attention.input);
  const Halves swiglu = count_halves(config, 1);
  CHECK(swiglu.weight == config.tokens() * 3 * d * h);
  CHECK(swiglu.input == config.tokens() * 3 * d * h);
  CHECK(4 * swiglu.weight >= swiglu.weight + swiglu.input);
}

TEST_CASE("nothing of the graph lives on between the halves", "[examples]") {
  const auto layer = make_sublayer(small(), 1);
  std::weak_ptr<torch::autograd::Node> before;
  std::weak_ptr<torch::autograd::Node> after;
  const auto watched = [&](const at::Tensor& h, MatrixProduct& product) {
    const at::Tensor x = h.square();
    before = x.grad_fn();
    const at::Tensor y = product(x, layer->parameters()[1].value);
    const at::Tensor f = y.square();
    after = f.grad_fn();
    return f;
  };
  std::vector<float> h = ramp(32, 0.3F);
  Tape tape = Tape::record(watched, copy_in(View{h.data(), 4, 8, Storage::fp32}));
  CHECK(!before.expired());
  CHECK(!after.expired());
  CHECK(tape.deferred_bytes() == 0);
  const at::Tensor df = at::ones_like(tape.output());
  const std::int64_t width = tape.output().size(1);
  tape.backward_input(df);
  CHECK(before.expired());
  CHECK(after.expired());
  CHECK(tape.deferred_bytes() == static_cast<std::size_t>(4 * (8 + width)) * sizeof(float));
  tape.backward_weight();
  CHECK(tape.deferred_bytes() == 0);
}

TEST_CASE("a frozen matrix passes the gradient on and keeps nothing for W", "[examples]") {
  const auto layer = make_sublayer(small(), 1);
  TorchSublayer sublayer(*layer);
  std::vector<float> h = ramp(32, 0.3F);
  std::vector<float> f(32);
  std::vector<float> df = ramp(32, 0.1F);
  std::vector<float> expected(32);
  std::vector<float> frozen(32);
  const auto view = [](std::vector<float>& values) { return View{values.data(), 4, 8, Storage::fp32}; };
  sublayer.forward({1}, view(h), view(f), Keep::for_backward);
  sublayer.backward_input({1}, view(df), view(expected));
  const std::size_t whole = sublayer.deferred_bytes();
  sublayer.drop({1});
  CHECK(sublayer.deferred_bytes() == 0);
  take_gradients(*layer);
  at::Tensor down = layer->parameters()[2].value;
  down.set_requires_grad(false);
  sublayer.forward({2}, view(h), view(f), Keep::for_backward);
  sublayer.backward_input({2}, view(df), view(frozen));
  CHECK(frozen == expected);
  CHECK(sublayer.deferred_bytes() < whole);
  sublayer.backward_weight({2});
  CHECK(sublayer.deferred_bytes() == 0);
  const auto gradients = take_gradients(*layer);
  CHECK(gradients[2] == std::vector<float>(gradients[2].size(), 0));
  CHECK(gradients[1] != std::vector<float>(gradients[1].size(), 0));
}

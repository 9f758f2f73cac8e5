// SPDX-License-Identifier: Apache-2.0
#include <vector>

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

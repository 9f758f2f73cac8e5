// SPDX-License-Identifier: Apache-2.0
// A user of `kernels` alone: a zero query takes the mean of its sources.
#include <array>

#include <plumb/kernels/depth_attention.hpp>

int main() {
  const plumb::DepthProblem problem{.tokens = 1, .width = 2};
  const std::array<float, 2> first{1, 2}, second{3, 6}, query{0, 0};
  std::array<float, 1> first_rms{}, second_rms{};
  std::array<float, 2> mean{};
  plumb::inverse_rms(problem, first.data(), first_rms.data());
  plumb::inverse_rms(problem, second.data(), second_rms.data());
  const std::array<plumb::DepthSource, 2> sources{
      {{first.data(), first_rms.data()}, {second.data(), second_rms.data()}}};
  plumb::aggregate_forward(problem, {.sources = sources, .query = query.data(), .h = mean.data()});
  return mean == std::array<float, 2>{2, 4} ? 0 : 1;
}

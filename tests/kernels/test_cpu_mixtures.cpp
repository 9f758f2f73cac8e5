// SPDX-License-Identifier: Apache-2.0
// Properties of the fast operators on single tokens: means, extremes, what a merge scores, what is read directly.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/support/cpu_case.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

TEST_CASE("zero queries give the mean, in storage precision", "[kernels]") {
  for (const int n : {2, 3, 7, 16}) {
    CpuCase<Bf16> in(4, 130, n, 1, 0.0);
    TestExecution execution;
    Rows<Bf16> h = not_a_number<Bf16>(4 * 130);
    cpu::aggregate_forward(in.problem, {in.list(), in.queries[0].data(), h.data(), nullptr},
                           execution(in.problem, static_cast<std::size_t>(n), 1));
    for (std::size_t k = 0; k < h.size(); ++k) {
      double mean = 0;
      double magnitude = 0;
      for (const Rows<Bf16>& each : in.sources) {
        mean += static_cast<double>(to_float(each[k])) / n;
        magnitude += std::abs(static_cast<double>(to_float(each[k]))) / n;
      }
      const double rounded = static_cast<double>(to_float(to_bf16(static_cast<float>(mean))));
      CHECK(std::abs(static_cast<double>(to_float(h[k])) - mean) <=
            std::abs(rounded - mean) + 4e-7 * magnitude + 1e-9 * std::abs(mean) +
                0x1p-8 * std::abs(mean) * (rounded == static_cast<double>(to_float(h[k])) ? 0 : 1));
    }
  }
}

TEST_CASE("the order of the sources changes a mixture by rounding only", "[kernels]") {
  const CpuCase<float> in(6, 500, 9, 1, 4.0);
  TestExecution execution;
  auto list = in.list();
  Rows<float> forward = poison<float>(6 * 500);
  Rows<float> backward = forward;
  cpu::aggregate_forward(in.problem, {list, in.queries[0].data(), forward.data(), nullptr},
                         execution(in.problem, 9, 1));
  std::reverse(list.begin(), list.end());
  cpu::aggregate_forward(in.problem, {list, in.queries[0].data(), backward.data(), nullptr},
                         execution(in.problem, 9, 1));
  CHECK(relative_l2(forward, convert<double>(backward)) <= 5e-7);
  CHECK_FALSE(same_rows(forward, backward));
}

TEST_CASE("extreme logits pick the greatest without overflow", "[kernels]") {
  // Keys of one sign, queries so large that logits are +-80 and beyond.
  CpuCase<Fp16> in(2, 64, 3, 1, 0.0);
  for (std::size_t k = 0; k < in.sources[0].size(); ++k) {
    in.sources[0][k] = to_fp16(1.0f);
    in.sources[1][k] = to_fp16(-2.0f);
    in.sources[2][k] = to_fp16(0.5f);
  }
  in.partial = in.sources[1];
  in.rescale();
  TestExecution execution;
  for (const float size : {80.0f, 3000.0f}) {
    in.queries[0] = Rows<float>(64, size / 64);
    Rows<Fp16> h = not_a_number<Fp16>(128);
    Rows<float> lse = poison<float>(2);
    cpu::aggregate_forward(in.problem, {in.list(), in.queries[0].data(), h.data(), lse.data()},
                           execution(in.problem, 3, 1));
    CHECK(lse[0] == Approx(size + std::log(2.0f)).epsilon(1e-5));
    CHECK(to_float(h[5]) == Approx(0.75).epsilon(1e-3));
    const DepthSource later{in.partial.data(), nullptr};
    Rows<Fp16> merged = not_a_number<Fp16>(128);
    cpu::merge_forward(in.problem, {h.data(), lse.data(), {&later, 1}, in.queries[0].data(), merged.data(), lse.data()},
                       execution(in.problem, 1, 1));
    CHECK(same_rows(merged, h));
    CHECK(lse[0] == Approx(size + std::log(2.0f)).epsilon(1e-5));
  }
}

TEST_CASE("an empty mixture contributes nothing, not even its garbage", "[kernels]") {
  const CpuCase<float> in(3, 40, 1, 1, 1.0);
  TestExecution execution;
  const Rows<float> o = poison<float>(3 * 40);
  const Rows<float> lse(3, -std::numeric_limits<float>::infinity());
  Rows<float> h = poison<float>(3 * 40);
  Rows<float> lse_out = poison<float>(3);
  const DepthSource later{in.partial.data(), nullptr};
  cpu::merge_forward(in.problem, {o.data(), lse.data(), {&later, 1}, in.queries[0].data(), h.data(), lse_out.data()},
                     execution(in.problem, 1, 1));
  CHECK(same_rows(h, in.partial));
  CHECK(std::isfinite(lse_out[0]));
}

TEST_CASE("a merge adds the output first and scores the rounded sum", "[kernels]") {
  const CpuCase<Bf16> in(5, 90, 3, 1, 3.0);
  TestExecution execution;
  const Rows<Bf16> f = in.uneven("output");
  Rows<Bf16> o = not_a_number<Bf16>(5 * 90);
  Rows<float> lse = poison<float>(5);
  const PhaseOneQuery one{in.queries[0].data(), o.data(), lse.data()};
  cpu::phase_one_forward(in.problem, {in.list(), {&one, 1}}, execution(in.problem, 3, 1));

  Rows<Bf16> sum = not_a_number<Bf16>(5 * 90);
  Rows<float> scale = poison<float>(5);
  cpu::add_output(in.problem, {in.partial.data(), f.data(), sum.data(), scale.data()}, execution(in.problem, 1, 1));
  for (std::size_t k = 0; k < sum.size(); ++k) {
    CHECK(sum[k].bits == to_bf16(to_float(in.partial[k]) + to_float(f[k])).bits);
  }
  const DepthSource stored{sum.data(), scale.data()};
  Rows<Bf16> h = not_a_number<Bf16>(5 * 90);
  Rows<float> lse_h = poison<float>(5);
  cpu::merge_forward(in.problem, {o.data(), lse.data(), {&stored, 1}, in.queries[0].data(), h.data(), lse_h.data()},
                     execution(in.problem, 1, 1));

  // In place: the partial becomes the sum, the mixture becomes h.
  Rows<Bf16> partial = in.partial;
  Rows<Bf16> fused = o;
  Rows<float> fused_lse = lse;
  const DepthSource open{partial.data(), nullptr};
  MergeForward merge{fused.data(), fused_lse.data(), {&open, 1}, in.queries[0].data(), fused.data(), fused_lse.data()};
  merge.output = f.data();
  merge.partial_out = partial.data();
  cpu::merge_forward(in.problem, merge, execution(in.problem, 1, 1));
  CHECK(same_rows(partial, sum));
  CHECK(same_rows(fused, h));
  CHECK(same_rows(fused_lse, lse_h));

  // Or the output becomes the sum.
  Rows<Bf16> output = f;
  fused = o;
  fused_lse = lse;
  const DepthSource before{in.partial.data(), nullptr};
  merge.later = {&before, 1};
  merge.output = output.data();
  merge.partial_out = output.data();
  cpu::merge_forward(in.problem, merge, execution(in.problem, 1, 1));
  CHECK(same_rows(output, sum));
  CHECK(same_rows(fused, h));
  CHECK(same_rows(fused_lse, lse_h));
}

TEST_CASE("an inverse rms that phase one takes on the way has the bits of the stored one", "[kernels]") {
  for (const cpu::Isa isa : {cpu::Isa::baseline, cpu::Isa::avx2, cpu::Isa::avx512}) {
    if (!cpu::is_supported(isa)) continue;
    TestExecution execution(isa);
    for (const std::int64_t width : {7, 100, 1500}) {
      for (const int queries : {1, 2, 3, 4, 5, 6, 12, 17}) {
        const CpuCase<Bf16> in(3, width, 5, queries, 1.0);
        const auto given = in.list();
        auto taken = given;
        std::vector<Rows<float>> scales(given.size(), poison<float>(3));
        std::vector<void*> scales_out;
        for (std::size_t i = 0; i < given.size(); ++i) {
          taken[i].inverse_rms = nullptr;
          scales_out.push_back(scales[i].data());
        }
        const auto run = [&](const std::vector<DepthSource>& sources, std::span<void* const> out, Rows<Bf16>& o) {
          Rows<float> lse = poison<float>(3);
          std::vector<PhaseOneQuery> all;
          for (const Rows<float>& query : in.queries) {
            all.push_back({query.data(), o.data() + 3 * width * static_cast<std::int64_t>(all.size()), nullptr});
          }
          std::vector<Rows<float>> all_lse(all.size(), lse);
          for (std::size_t l = 0; l < all.size(); ++l) {
            all[l].lse = all_lse[l].data();
          }
          cpu::phase_one_forward(in.problem, {sources, all, false, out},
                                 execution(in.problem, sources.size(), all.size()));
          return all_lse;
        };
        Rows<Bf16> o = not_a_number<Bf16>(queries * 3 * width);
        Rows<Bf16> o_taken = o;
        CHECK(run(given, {}, o) == run(taken, scales_out, o_taken));
        CHECK(same_rows(o, o_taken));
        CHECK(scales == in.scales);
      }
    }
  }
}

TEST_CASE("the output norm is the RMSNorm of the unrounded mixture", "[kernels]") {
  const CpuCase<float> in(7, 200, 2, 1, 2.0);
  TestExecution execution;
  const Rows<float> gain = random_rows<float>("gain", 200, 0.3, 1.0);
  Rows<float> o = poison<float>(7 * 200);
  Rows<float> lse = poison<float>(7);
  const PhaseOneQuery one{in.queries[0].data(), o.data(), lse.data()};
  cpu::phase_one_forward(in.problem, {in.list(), {&one, 1}}, execution(in.problem, 2, 1));
  // Token 3: a partial that nearly cancels the mixture, where sums of products would lose all digits.
  CpuCase<float> other = in;
  for (std::size_t j = 0; j < 200; ++j) {
    other.partial[3 * 200 + j] = -o[3 * 200 + j] * 1.0001f;
  }
  const auto run = [&](const OutputNorm& norm) {
    Rows<float> h = poison<float>(7 * 200);
    const DepthSource later{other.partial.data(), nullptr};
    MergeForward merge{o.data(), lse.data(), {&later, 1}, in.queries[0].data(), h.data(), nullptr};
    merge.norm = norm;
    cpu::merge_forward(in.problem, merge, execution(in.problem, 1, 1));
    return h;
  };
  const Rows<float> plain = run({});
  const Rows<float> normed = run({gain.data(), 1e-6});
  for (std::size_t t = 0; t < 7; ++t) {
    double squares = 0;
    for (std::size_t j = 0; j < 200; ++j) {
      squares += static_cast<double>(plain[t * 200 + j]) * static_cast<double>(plain[t * 200 + j]);
    }
    const double factor = 1 / std::sqrt(squares / 200 + 1e-6);
    for (std::size_t j = 0; j < 200; ++j) {
      const double expected = static_cast<double>(plain[t * 200 + j]) * factor * static_cast<double>(gain[j]);
      CHECK(static_cast<double>(normed[t * 200 + j]) == Approx(expected).epsilon(1e-4).margin(1e-6));
    }
  }
}

TEST_CASE("fp64 runs through the fast interface too", "[kernels]") {
  const CpuCase<float> narrow(6, 30, 3, 2, 2.0);
  const WideCase in(narrow);
  TestExecution execution;
  const auto list = in.list(3);
  const auto every = in.list(4);
  Rows<double> expected = poison<double>(180);
  aggregate_forward(in.problem, {every, in.queries[0].data(), expected.data(), nullptr});
  Rows<double> o = poison<double>(180);
  Rows<double> lse = poison<double>(6);
  Rows<double> h = poison<double>(180);
  const PhaseOneQuery one{in.queries[0].data(), o.data(), lse.data()};
  cpu::phase_one_forward(in.problem, {list, {&one, 1}}, execution(in.problem, 3, 1));
  const std::span<const DepthSource> all = every;
  cpu::merge_forward(in.problem, {o.data(), lse.data(), all.last(1), in.queries[0].data(), h.data(), nullptr},
                     execution(in.problem, 1, 1));
  CHECK(relative_l2(h, expected) <= 1e-14);
  cpu::merge_forward(in.problem, {nullptr, nullptr, all, in.queries[0].data(), h.data(), nullptr},
                     execution(in.problem, 4, 1));
  CHECK(relative_l2(h, expected) <= 1e-14);
}

TEST_CASE("closed sources are aliased, read directly or batched by their number", "[kernels]") {
  CHECK(choose_inter_block(1, 16) == InterBlockChoice::alias);
  CHECK(choose_inter_block(2, 16) == InterBlockChoice::direct);
  CHECK(choose_inter_block(3, 16) == InterBlockChoice::batched);
  CHECK(choose_inter_block(9, 1) == InterBlockChoice::direct);
}

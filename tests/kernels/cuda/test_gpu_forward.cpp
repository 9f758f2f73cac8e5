// SPDX-License-Identifier: Apache-2.0
// The bodies of the GPU's forward kernels, on simulated blocks, against double arithmetic on the same stored inputs.
#include <cmath>

#include "kernels/cuda/gpu_case.hpp"
#include "kernels/support/forward_bounds.hpp"
#include "kernels/support/sampling.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;
using cuda_detail::Operators;

namespace {

template <class V>
void check_forward(std::int64_t tokens, std::int64_t width, int n, int num_queries, double query_norm) {
  INFO(to_string(kFormat<V>) << ", tokens " << tokens << ", width " << width << ", sources " << n << ", queries "
                             << num_queries << ", |q| " << query_norm);
  const CpuCase<V> in(tokens, width, n, num_queries, query_norm);
  const WideCase wide(in);
  const DepthProblem& problem = in.problem;
  const std::int64_t size = tokens * width;
  const auto count = static_cast<std::size_t>(n);
  GpuRun<V> fast;
  const auto sources = in.list();

  std::vector<Rows<V>> o(in.queries.size(), not_a_number<V>(size));
  std::vector<Rows<float>> wide_o(in.queries.size(), poison<float>(size));
  std::vector<Rows<float>> lse(in.queries.size(), poison<float>(tokens));
  std::vector<Rows<float>> wide_lse = lse;
  std::vector<PhaseOneQuery> all;
  std::vector<PhaseOneQuery> all_wide;
  for (std::size_t l = 0; l < in.queries.size(); ++l) {
    all.push_back({in.queries[l].data(), o[l].data(), lse[l].data()});
    all_wide.push_back({in.queries[l].data(), wide_o[l].data(), wide_lse[l].data()});
  }
  // The second time 1/rms is not given but computed, and handed out.
  const std::vector<DepthSource> bare = without_scales(sources);
  std::vector<Rows<float>> scales(count, poison<float>(tokens));
  std::vector<void*> scales_out;
  for (Rows<float>& each : scales) {
    scales_out.push_back(each.data());
  }
  fast.phase_one(problem, {sources, all});
  fast.phase_one(problem, {bare, all_wide, true, scales_out});
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(relative_difference(scales[i], wide.scales[i]) <= 4 * kUlp);
  }

  for (std::size_t l = 0; l < in.queries.size(); ++l) {
    const Expected closed(wide.problem, wide.list(count), wide.queries[l]);
    check_phase_one(o[l], wide_o[l], lse[l], count, closed);
    check_lse(wide_lse[l], closed);
    if (l % 4 == 0) {
      const Expected joined(wide.problem, wide.list(count + 1), wide.queries[l]);
      check_merges(fast, in, l, o[l], wide_o[l], lse[l], closed, joined);
    }
  }
}

template <class V>
void check_all_forward() {
  const Sampling sampling(1);
  int number = 0;
  for (const std::int64_t width : {7, 100, 104, 1000}) {
    for (const int n : {1, 2, 3, 8, 9, 16, 17}) {
      if (width == 1000 && n % 8 == 0) {
        continue;  // many threads take long here
      }
      const int queries = std::vector<int>{1, 2, 6, 9}[static_cast<std::size_t>(number % 4)];
      if (sampling.takes(number++)) {
        check_forward<V>(width < 1000 ? 12 : 4, width, n, queries, number % 2 == 0 ? 1.0 : 8.0);
      }
    }
  }
  check_forward<V>(8, 2304, 3, 1, 8.0);  // a thread owns columns more than once
  check_forward<V>(8, 4096, 1, 1, 2.0);
  check_forward<V>(8, 7168, 2, 1, 2.0);
  check_forward<V>(4, 40, 5, 24, 2.0);
}

}  // namespace

TEST_CASE("forward kernels of the GPU keep their bounds in fp32", "[gpu]") { check_all_forward<float>(); }
TEST_CASE("forward kernels of the GPU keep their bounds in bf16", "[gpu]") { check_all_forward<Bf16>(); }
TEST_CASE("forward kernels of the GPU keep their bounds in fp16", "[gpu]") { check_all_forward<Fp16>(); }

TEST_CASE("on the GPU a merge adds the output, scores the rounded sum and normalises", "[gpu]") {
  const CpuCase<Bf16> in(5, 104, 3, 1, 3.0);
  const DepthProblem& problem = in.problem;
  const std::int64_t size = 5 * 104;
  simt::Machine gpu;
  GpuWorkspace workspace;
  const auto sources = in.list();
  Rows<float> o = poison<float>(size);
  Rows<float> lse_o = poison<float>(5);
  const PhaseOneQuery one{in.queries[0].data(), o.data(), lse_o.data()};
  Operators<Bf16>::phase_one(gpu, problem, {sources, {&one, 1}, true}, workspace(problem, 3, 1));
  const Rows<Bf16> output = in.uneven("output");
  const Rows<float> gain = random_rows<float>("gain", 104);

  Rows<Bf16> sum = not_a_number<Bf16>(size);
  Rows<float> sum_scale = poison<float>(5);
  Operators<Bf16>::add_output(gpu, problem, {in.partial.data(), output.data(), sum.data(), sum_scale.data()});
  Rows<Bf16> by_cpu = not_a_number<Bf16>(size);
  TestExecution execution;
  cpu::add_output(problem, {in.partial.data(), output.data(), by_cpu.data()}, execution(problem, 1, 1));
  CHECK(same_rows(sum, by_cpu));

  const DepthSource summed{sum.data(), nullptr};
  Rows<Bf16> plain = not_a_number<Bf16>(size);
  Rows<float> lse_plain = poison<float>(5);
  MergeForward merge{o.data(), lse_o.data(), {&summed, 1}, in.queries[0].data(), plain.data(), lse_plain.data(), true};
  merge.norm = {gain.data(), 1e-5};
  Operators<Bf16>::merge(gpu, problem, merge);

  // In one go, the sum going back into the partial.
  Rows<Bf16> partial = in.partial;
  const DepthSource open{partial.data(), nullptr};
  Rows<Bf16> h = not_a_number<Bf16>(size);
  Rows<float> lse = poison<float>(5);
  merge.later = {&open, 1};
  merge.h = h.data();
  merge.lse_out = lse.data();
  merge.output = output.data();
  merge.partial_out = partial.data();
  Operators<Bf16>::merge(gpu, problem, merge);
  CHECK(same_rows(partial, by_cpu));
  CHECK(same_rows(h, plain));
  CHECK(same_rows(lse, lse_plain));

  // Against the CPU's.
  Rows<Bf16> cpu_h = not_a_number<Bf16>(size);
  merge.h = cpu_h.data();
  merge.output = nullptr;
  merge.partial_out = nullptr;
  cpu::merge_forward(problem, merge, execution(problem, 1, 1));
  CHECK(relative_l2(to_double(h), to_double(cpu_h)) <= 1e-3);
  CHECK(relative_difference(lse, lse_plain) <= 1e-6);
}

TEST_CASE("on the GPU a mixture may be replaced by what is merged into it", "[gpu]") {
  const CpuCase<Fp16> in(4, 48, 2, 1, 3.0);
  simt::Machine gpu;
  GpuWorkspace workspace;
  const auto sources = in.list();
  Rows<Fp16> o = not_a_number<Fp16>(4 * 48);
  Rows<float> lse = poison<float>(4);
  const PhaseOneQuery one{in.queries[0].data(), o.data(), lse.data()};
  Operators<Fp16>::phase_one(gpu, in.problem, {sources, {&one, 1}}, workspace(in.problem, 2, 1));
  const DepthSource later{in.partial.data(), nullptr};
  Rows<Fp16> h = not_a_number<Fp16>(4 * 48);
  Rows<float> lse_h = poison<float>(4);
  Operators<Fp16>::merge(gpu, in.problem,
                         {o.data(), lse.data(), {&later, 1}, in.queries[0].data(), h.data(), lse_h.data()});
  Operators<Fp16>::merge(gpu, in.problem,
                         {o.data(), lse.data(), {&later, 1}, in.queries[0].data(), o.data(), lse.data()});
  CHECK(same_rows(o, h));
  CHECK(same_rows(lse, lse_h));
}

TEST_CASE("on the GPU weights that are known give the weighted sums", "[gpu]") {
  for (const int outputs : {1, 8, 11}) {
    const CpuCase<float> in(3, 60, 5, 1, 1.0);
    const Rows<float> weights = random_rows<float>("weights", 3 * 5 * outputs);
    std::vector<const void*> sources;
    for (const auto& each : in.sources) {
      sources.push_back(each.data());
    }
    std::vector<Rows<float>> got(static_cast<std::size_t>(outputs), poison<float>(3 * 60));
    std::vector<Rows<float>> expected = got;
    std::vector<void*> to;
    std::vector<void*> to_expected;
    for (std::size_t g = 0; g < got.size(); ++g) {
      to.push_back(got[g].data());
      to_expected.push_back(expected[g].data());
    }
    simt::Machine gpu;
    TestExecution execution;
    Operators<float>::weighted_sum(gpu, in.problem, {sources, weights.data(), to});
    cpu::weighted_sum(in.problem, {sources, weights.data(), to_expected}, execution(in.problem, 5, got.size()));
    for (std::size_t g = 0; g < got.size(); ++g) {
      CHECK(relative_difference(got[g], expected[g]) <= 1e-6);
    }
  }
}

TEST_CASE("on the GPU zero queries give the mean and a sole source is copied", "[gpu]") {
  const CpuCase<Bf16> in(3, 100, 4, 1, 0.0);
  simt::Machine gpu;
  const auto sources = in.list();
  Rows<Bf16> h = not_a_number<Bf16>(300);
  Rows<float> lse = poison<float>(3);
  Operators<Bf16>::aggregate(gpu, in.problem, {sources, in.queries[0].data(), h.data(), lse.data()});
  for (std::size_t k = 0; k < h.size(); ++k) {
    float sum = 0;
    for (const auto& each : in.sources) {
      sum = std::fma(0.25f, widened(each[k]), sum);
    }
    CHECK(h[k].bits == to_bf16(sum).bits);
  }
  Operators<Bf16>::aggregate(gpu, in.problem, {{sources.data(), 1}, in.queries[0].data(), h.data(), lse.data()});
  CHECK(same_rows(h, in.sources[0]));
}

TEST_CASE("on the GPU bits depend neither on the order of threads nor on alignment, batch or place", "[gpu]") {
  const CpuCase<Bf16> in(6, 520, 5, 10, 3.0);
  const std::int64_t size = 6 * 520;
  const auto run = [&](simt::Order order, const std::vector<DepthSource>& sources, std::int64_t tokens, int queries,
                       std::size_t query) {
    DepthProblem problem = in.problem;
    problem.tokens = tokens;
    simt::Machine gpu(order);
    GpuWorkspace workspace;
    std::vector<Rows<Bf16>> o(static_cast<std::size_t>(queries), not_a_number<Bf16>(tokens * 520));
    std::vector<Rows<float>> lse(o.size(), poison<float>(tokens));
    std::vector<PhaseOneQuery> all;
    for (std::size_t l = 0; l < o.size(); ++l) {
      all.push_back({in.queries[(query + l) % 10].data(), o[l].data(), lse[l].data()});
    }
    Operators<Bf16>::phase_one(gpu, problem, {sources, all}, workspace(problem, 5, all.size()));
    return std::pair{o[0], lse[0]};
  };
  const auto list = in.list();
  const auto base = run(simt::Order::ascending, list, 6, 1, 9);
  CHECK(run(simt::Order::descending, list, 6, 1, 9).second == base.second);
  CHECK(same_rows(run(simt::Order::shuffled, list, 6, 1, 9).first, base.first));
  CHECK(same_rows(run(simt::Order::ascending, list, 6, 10, 9).first, base.first));

  // Rows off the 16-byte grid: element by element.
  std::vector<Rows<Bf16>> shifted;
  std::vector<DepthSource> off = list;
  for (std::size_t i = 0; i < off.size(); ++i) {
    shifted.push_back(Rows<Bf16>(1));
    shifted.back().insert(shifted.back().end(), in.sources[i].begin(), in.sources[i].end());
  }
  for (std::size_t i = 0; i < off.size(); ++i) {
    off[i].value = shifted[i].data() + 1;
  }
  CHECK(same_rows(run(simt::Order::ascending, off, 6, 1, 9).first, base.first));

  // The last two tokens alone.
  std::vector<DepthSource> tail = list;
  for (std::size_t i = 0; i < tail.size(); ++i) {
    tail[i] = {in.sources[i].data() + 4 * 520, in.scales[i].data() + 4};
  }
  const auto part = run(simt::Order::ascending, tail, 2, 1, 9);
  CHECK(same_bytes(part.first.data(), base.first.data() + 4 * 520, static_cast<std::size_t>(size - 4 * 520) * 2));
}

TEST_CASE("on the GPU two phases equal the direct aggregate, and the order of sources matters by rounding only",
          "[gpu]") {
  const CpuCase<float> in(6, 136, 7, 1, 3.0);
  const std::size_t size = 6 * 136;
  simt::Machine gpu;
  GpuWorkspace workspace;
  const void* query = in.queries[0].data();
  const auto all = in.list();
  const auto aggregate = [&](std::span<const DepthSource> sources) {
    Rows<float> h = poison<float>(static_cast<std::int64_t>(size));
    Operators<float>::aggregate(gpu, in.problem, {sources, query, h.data(), nullptr});
    return h;
  };
  const Rows<float> direct = aggregate(all);
  std::vector<DepthSource> turned(all.rbegin(), all.rend());
  CHECK(relative_difference(aggregate(turned), direct) <= 1e-6);

  Rows<float> o = poison<float>(static_cast<std::int64_t>(size));
  Rows<float> lse = poison<float>(6);
  const PhaseOneQuery one{query, o.data(), lse.data()};
  const std::span<const DepthSource> list(all);
  Operators<float>::phase_one(gpu, in.problem, {list.first(4), {&one, 1}}, workspace(in.problem, 4, 1));
  Rows<float> h = poison<float>(static_cast<std::int64_t>(size));
  Operators<float>::merge(gpu, in.problem, {o.data(), lse.data(), list.last(3), query, h.data(), nullptr});
  CHECK(relative_difference(h, direct) <= 1e-6);
}

TEST_CASE("on the GPU extreme logits stay finite and what is not finite stays in its token", "[gpu]") {
  CpuCase<float> in(4, 64, 3, 1, 10.0);
  for (std::size_t j = 0; j < 64; ++j) {  // token 1: |s| = 80
    in.sources[0][64 + j] = in.queries[0][j];
    in.sources[1][64 + j] = -in.queries[0][j];
  }
  const auto run = [&](const CpuCase<float>& of) {
    simt::Machine gpu;
    Rows<float> h = poison<float>(4 * 64);
    Rows<float> lse = poison<float>(4);
    const auto list = of.list();
    Operators<float>::aggregate(gpu, of.problem, {list, of.queries[0].data(), h.data(), lse.data()});
    return h;
  };
  in.rescale();
  const Rows<float> clean = run(in);
  for (const float each : clean) {
    CHECK(std::isfinite(each));
  }
  in.sources[1][2 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
  in.sources[2][3 * 64 + 7] = std::numeric_limits<float>::infinity();
  in.rescale();
  const Rows<float> spoilt = run(in);
  CHECK(same_bytes(spoilt.data(), clean.data(), 2 * 64 * sizeof(float)));
  CHECK(std::isnan(spoilt[2 * 64]));
}

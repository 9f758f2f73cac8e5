// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "kernels/support/naive.hpp"
#include "plumb/kernels/depth_attention.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

template <class T>
constexpr double kTight = sizeof(T) == 8 ? 1e-12 : 1e-5;

template <class T>
DepthProblem problem_of(std::int64_t tokens, std::int64_t width, double eps = 1e-6) {
  return {tokens, width, kStorage<T>, eps};
}

template <class T>
struct Query {
  Rows<T> w;
  Rows<T> g;
  Rows<T> folded;
  Query(const DepthProblem& problem, const std::string& name, double scale = 1.0)
      : w(random_rows<T>(name + "/w", problem.width, scale)),
        g(random_rows<T>(name + "/g", problem.width, 0.3, 1.0)),
        folded(poison<T>(problem.width)) {
    fold_query(problem, w.data(), g.data(), folded.data());
  }
};

template <class T>
NaiveAggregate::Result naive(const DepthProblem& problem, const SourceSet<T>& sources, const Query<T>& query) {
  std::vector<Rows<double>> values;
  for (const Rows<T>& each : sources.values) {
    values.push_back(convert<double>(each));
  }
  return NaiveAggregate{problem.tokens, problem.width, problem.eps}(values, convert<double>(query.w),
                                                                    convert<double>(query.g));
}

// Direct, and two phases with every split of the sources into phase one and later ones, against the definition.
template <class T>
void check_forward(std::int64_t tokens, std::int64_t width, int count) {
  INFO("tokens " << tokens << ", width " << width << ", sources " << count);
  const DepthProblem problem = problem_of<T>(tokens, width);
  const SourceSet<T> sources(problem, count, "forward");
  const Query<T> query(problem, "forward");
  const auto expected = naive(problem, sources, query);
  const std::vector<DepthSource> list = sources.list();

  Rows<T> direct = poison<T>(tokens * width);
  Rows<T> lse = poison<T>(tokens);
  aggregate_forward(problem, {list, query.folded.data(), direct.data(), lse.data()});
  CHECK(relative_difference(direct, expected.h) <= kTight<T>);
  CHECK(relative_difference(lse, expected.lse) <= kTight<T>);

  for (int prior = 1; prior <= count; ++prior) {
    const std::span<const DepthSource> all = list;
    Rows<T> o = poison<T>(tokens * width);
    Rows<T> lse_o = poison<T>(tokens);
    const PhaseOneQuery one{query.folded.data(), o.data(), lse_o.data()};
    phase_one_forward(problem, {all.first(static_cast<std::size_t>(prior)), {&one, 1}});
    if (prior == count) {
      CHECK(same_bits(o, direct));
      CHECK(same_bits(lse_o, lse));
      break;
    }
    Rows<T> h = poison<T>(tokens * width);
    Rows<T> lse_h = poison<T>(tokens);
    merge_forward(problem, {o.data(), lse_o.data(), all.subspan(static_cast<std::size_t>(prior)), query.folded.data(),
                            h.data(), lse_h.data()});
    CHECK(relative_difference(h, direct) <= kTight<T>);
    CHECK(relative_difference(h, expected.h) <= kTight<T>);
    CHECK(relative_difference(lse_h, expected.lse) <= kTight<T>);
  }
}

template <class T>
void check_forward_shapes() {
  for (const std::int64_t width : {1, 3, 16, 17, 100}) {
    for (const int count : {1, 2, 3, 5, 9}) {
      check_forward<T>(3, width, count);
    }
  }
  check_forward<T>(2, 1000, 17);
  check_forward<T>(1, 8, 300);  // more sources than the scratch holds on the stack
}

}  // namespace

TEST_CASE("direct and two-phase forward equal the definition for any shape", "[kernels]") {
  SECTION("fp32 to 1e-5") { check_forward_shapes<float>(); }
  SECTION("fp64 to 1e-12") { check_forward_shapes<double>(); }
}

TEST_CASE("a sole source is returned bit for bit, its log sum is its logit", "[kernels]") {
  const DepthProblem problem = problem_of<float>(4, 33);
  const SourceSet<float> sources(problem, 1, "sole");
  const Query<float> query(problem, "sole", 30.0);
  Rows<float> h = poison<float>(4 * 33);
  Rows<float> o = h;
  Rows<float> lse = poison<float>(4);
  Rows<float> lse_o = lse;
  aggregate_forward(problem, {sources.list(), query.folded.data(), h.data(), lse.data()});
  const auto list = sources.list();
  const PhaseOneQuery one{query.folded.data(), o.data(), lse_o.data()};
  phase_one_forward(problem, {list, {&one, 1}});
  CHECK(same_bits(h, sources.values[0]));
  CHECK(same_bits(o, sources.values[0]));
  CHECK(same_bits(lse, lse_o));
  CHECK(relative_difference(lse, naive(problem, sources, query).s[0]) < 1e-5);
}

TEST_CASE("a zero query gives the mean of the sources", "[kernels]") {
  const DepthProblem problem = problem_of<float>(5, 24);
  const SourceSet<float> sources(problem, 7, "mean");
  const Rows<float> zero = zeros<float>(24);
  Rows<float> h = poison<float>(5 * 24);
  aggregate_forward(problem, {sources.list(), zero.data(), h.data(), nullptr});
  Rows<double> mean = zeros<double>(5 * 24);
  for (const Rows<float>& each : sources.values) {
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += static_cast<double>(each[i]) / 7;
    }
  }
  CHECK(relative_difference(h, mean) < 5e-7);
}

TEST_CASE("the mixture is of raw values, not of normalised ones", "[kernels]") {
  // One source a hundred times the other: normalised keys agree, so the weights are equal and the raw sizes remain.
  const DepthProblem problem = problem_of<double>(1, 4, 1e-12);
  SourceSet<double> sources(problem, 2, "raw");
  sources.values[0] = {1, -1, 1, -1};
  sources.values[1] = {100, -100, 100, -100};
  sources.rescale(problem);
  const Query<double> query(problem, "raw");
  Rows<double> h = poison<double>(4);
  aggregate_forward(problem, {sources.list(), query.folded.data(), h.data(), nullptr});
  CHECK(relative_difference(h, Rows<double>{50.5, -50.5, 50.5, -50.5}) < 1e-10);
}

TEST_CASE("logits are not divided by the root of the width", "[kernels]") {
  const DepthProblem problem = problem_of<double>(1, 16, 1e-12);
  SourceSet<double> sources(problem, 1, "logit");
  sources.values[0] = Rows<double>(16, 3.0);  // the normalised key is all ones
  sources.rescale(problem);
  const Rows<double> query(16, 0.5);
  double lse = 0;
  aggregate_forward(problem, {sources.list(), query.data(), nullptr, &lse});
  CHECK(lse == Approx(8.0).epsilon(1e-10));
}

TEST_CASE("huge logits and zero rows give finite results", "[kernels]") {
  const DepthProblem problem = problem_of<float>(2, 8);
  SourceSet<float> sources(problem, 3, "huge");
  sources.values[1] = zeros<float>(16);
  sources.rescale(problem);
  const Query<float> query(problem, "huge", 1e4);
  const auto list = sources.list();
  Rows<float> direct = poison<float>(16);
  Rows<float> lse = poison<float>(2);
  aggregate_forward(problem, {list, query.folded.data(), direct.data(), lse.data()});
  Rows<float> o = poison<float>(16);
  Rows<float> lse_o = poison<float>(2);
  const PhaseOneQuery one{query.folded.data(), o.data(), lse_o.data()};
  const std::span<const DepthSource> all = list;
  phase_one_forward(problem, {all.first(1), {&one, 1}});
  merge_forward(problem, {o.data(), lse_o.data(), all.subspan(1), query.folded.data(), o.data(), lse_o.data()});
  CHECK(relative_difference(o, direct) < 1e-5);
  CHECK(relative_difference(lse_o, lse) < 1e-5);
  for (const float value : direct) {
    CHECK(std::isfinite(value));
  }
}

TEST_CASE("an inverse rms computed on the fly has the bits of the stored one", "[kernels]") {
  const DepthProblem problem = problem_of<float>(3, 19);
  const SourceSet<float> sources(problem, 4, "on the fly");
  const Query<float> query(problem, "on the fly");
  std::vector<DepthSource> list = sources.list();
  Rows<float> stored = poison<float>(3 * 19);
  Rows<float> computed = stored;
  aggregate_forward(problem, {list, query.folded.data(), stored.data(), nullptr});
  for (DepthSource& each : list) {
    each.inverse_rms = nullptr;
  }
  aggregate_forward(problem, {list, query.folded.data(), computed.data(), nullptr});
  CHECK(same_bits(stored, computed));
}

TEST_CASE("a token's bits depend neither on its neighbours nor on the other queries", "[kernels]") {
  const std::int64_t width = 21;
  const DepthProblem all = problem_of<float>(6, width);
  const SourceSet<float> sources(all, 4, "slices");
  std::vector<Query<float>> queries;
  std::vector<Rows<float>> o(3, poison<float>(6 * width));
  std::vector<Rows<float>> lse(3, poison<float>(6));
  std::vector<PhaseOneQuery> outputs;
  for (std::size_t k = 0; k < 3; ++k) {
    queries.emplace_back(all, "slices " + std::to_string(k));
  }
  for (std::size_t k = 0; k < 3; ++k) {
    outputs.push_back({queries[k].folded.data(), o[k].data(), lse[k].data()});
  }
  const auto list = sources.list();
  phase_one_forward(all, {list, outputs});

  const DepthProblem one_token = problem_of<float>(1, width);
  for (std::size_t t = 0; t < 6; ++t) {
    std::vector<DepthSource> slice;
    for (std::size_t i = 0; i < 4; ++i) {
      slice.push_back({sources.values[i].data() + t * static_cast<std::size_t>(width), sources.scales[i].data() + t});
    }
    Rows<float> h = poison<float>(width);
    aggregate_forward(one_token, {slice, queries[1].folded.data(), h.data(), nullptr});
    CHECK(std::memcmp(h.data(), o[1].data() + t * static_cast<std::size_t>(width), h.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("an output opens a block or is added to the partial, rounded once", "[kernels]") {
  const DepthProblem problem = problem_of<float>(2, 3);
  const Rows<float> f = random_rows<float>("f", 6);
  Rows<float> partial = random_rows<float>("p", 6);
  Rows<float> out = poison<float>(6);
  add_output(problem, nullptr, f.data(), out.data());
  CHECK(same_bits(out, f));
  add_output(problem, partial.data(), f.data(), out.data());
  Rows<float> expected(6);
  for (std::size_t i = 0; i < 6; ++i) {
    expected[i] = partial[i] + f[i];
  }
  CHECK(same_bits(out, expected));
  add_output(problem, partial.data(), f.data(), partial.data());
  CHECK(same_bits(partial, expected));
}

TEST_CASE("operators refuse an empty list of sources", "[kernels]") {
  const DepthProblem problem = problem_of<float>(1, 1);
  CHECK_THROWS_WITH(aggregate_forward(problem, {}), "depth attention: an aggregate needs at least one source, got 0");
  CHECK_THROWS_AS(phase_one_forward(problem, {}), std::invalid_argument);
  CHECK_THROWS_AS(merge_forward(problem, {}), std::invalid_argument);
}

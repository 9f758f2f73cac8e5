// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <stdexcept>

#include "kernels/support/naive.hpp"
#include "plumb/kernels/depth_attention_backward.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// S sublayers of one block: all read the prior sources; sublayer l then reads `later` blocks 0..l-1 (Full) or its own
// partial (Block), or nothing when l = 0.
template <class T>
struct Group {
  enum class Kind { partials, blocks };

  DepthProblem problem;
  Kind kind;
  int num_readers;
  SourceSet<T> prior;
  SourceSet<T> later;  // one per reader; under `blocks` the last is read by nobody
  std::vector<Rows<T>> w, g, grad_h;

  Group(Kind kind_in, int readers, int num_prior, std::int64_t tokens, std::int64_t width, double eps = 1e-2,
        double query_scale = 0.8)
      : problem{tokens, width, kStorage<T>, eps},
        kind(kind_in),
        num_readers(readers),
        prior(problem, num_prior, "prior"),
        later(problem, readers, "later") {
    for (int l = 0; l < readers; ++l) {
      const std::string name = "reader " + std::to_string(l);
      w.push_back(random_rows<T>(name + "/w", width, query_scale));
      g.push_back(random_rows<T>(name + "/g", width, 0.3, 1.0));
      grad_h.push_back(random_rows<T>(name + "/G", tokens * width));
    }
  }

  std::size_t readers() const { return static_cast<std::size_t>(num_readers); }

  std::vector<std::size_t> later_of(std::size_t l) const {
    if (l == 0) {
      return {};
    }
    if (kind == Kind::partials) {
      return {l};
    }
    std::vector<std::size_t> all(l);
    for (std::size_t i = 0; i < l; ++i) {
      all[i] = i;
    }
    return all;
  }

  // sum_l G_l . h_l by the definition
  double loss() const {
    double sum = 0;
    for (std::size_t l = 0; l < readers(); ++l) {
      std::vector<Rows<double>> values;
      for (const Rows<T>& each : prior.values) {
        values.push_back(convert<double>(each));
      }
      for (const std::size_t i : later_of(l)) {
        values.push_back(convert<double>(later.values[i]));
      }
      const Rows<double> h = NaiveAggregate{problem.tokens, problem.width, problem.eps}(values, convert<double>(w[l]),
                                                                                        convert<double>(g[l]))
                                 .h;
      for (std::size_t i = 0; i < h.size(); ++i) {
        sum += static_cast<double>(grad_h[l][i]) * h[i];
      }
    }
    return sum;
  }

  struct Gradients {
    std::vector<Rows<T>> prior, later, w, g;
  };

  Gradients empty_gradients(bool poisoned) const {
    const auto make = [&](std::int64_t n) { return poisoned ? poison<T>(n) : zeros<T>(n); };
    Gradients out;
    out.prior.assign(prior.values.size(), make(problem.tokens * problem.width));
    out.later.assign(readers(), zeros<T>(problem.tokens * problem.width));
    out.w.assign(readers(), zeros<T>(problem.width));
    out.g = out.w;
    return out;
  }

  Rows<T> fold(std::size_t l) const {
    Rows<T> q = poison<T>(problem.width);
    fold_query(problem, w[l].data(), g[l].data(), q.data());
    return q;
  }

  Gradients direct() const {
    Gradients out = empty_gradients(false);
    for (std::size_t l = 0; l < readers(); ++l) {
      std::vector<DepthSourceGradient> sources;
      for (std::size_t i = 0; i < prior.values.size(); ++i) {
        sources.push_back({prior.list()[i], out.prior[i].data(), false});
      }
      for (const std::size_t i : later_of(l)) {
        sources.push_back({later.list()[i], out.later[i].data(), false});
      }
      const Rows<T> q = fold(l);
      Rows<T> sums = zeros<T>(num_token_runs(problem.tokens) * problem.width);
      aggregate_backward(problem, {sources, q.data(), grad_h[l].data(), sums.data()});
      reduce_query_gradient(problem, {sums.data(), w[l].data(), g[l].data(), out.w[l].data(), out.g[l].data()});
    }
    return out;
  }

  // As the block machine does it: forward phases, merge backward deepest first, then the batched backward.
  Gradients two_phase() const {
    Gradients out = empty_gradients(true);
    const std::size_t n = readers();
    std::vector<Rows<T>> q, o, lse_o, h, lse, delta, sums;
    for (std::size_t l = 0; l < n; ++l) {
      q.push_back(fold(l));
      o.push_back(poison<T>(problem.tokens * problem.width));
      h.push_back(o.back());
      lse_o.push_back(poison<T>(problem.tokens));
      lse.push_back(lse_o.back());
      delta.push_back(lse_o.back());
      sums.push_back(zeros<T>(num_token_runs(problem.tokens) * problem.width));
    }
    std::vector<PhaseOneQuery> queries;
    for (std::size_t l = 0; l < n; ++l) {
      queries.push_back({q[l].data(), o[l].data(), lse_o[l].data()});
    }
    const auto prior_list = prior.list();
    phase_one_forward(problem, {prior_list, queries});
    std::vector<InterBlockReader> all;
    for (std::size_t l = 0; l < n; ++l) {
      const auto list = pick_later(l);
      if (list.empty()) {
        lse[l] = lse_o[l];
      } else {
        merge_forward(problem, {o[l].data(), lse_o[l].data(), list, q[l].data(), h[l].data(), lse[l].data()});
      }
      all.push_back({q[l].data(), grad_h[l].data(), lse[l].data(), delta[l].data(), sums[l].data(),
                     prior.values.size() == 1 && list.empty()});
    }
    const std::span<const InterBlockReader> span = all;
    for (std::size_t l = n; l-- > 0;) {
      if (kind == Kind::blocks && l + 1 < n) {
        const DepthSourceGradient block{later.list()[l], out.later[l].data(), false};
        inter_block_backward(problem, {{&block, 1}, span.subspan(l + 1)});
      }
      const auto list = pick_later(l);
      void* grad_partial = kind == Kind::partials && l > 0 ? out.later[l].data() : nullptr;
      merge_backward(problem, {o[l].data(), lse_o[l].data(), list, q[l].data(), grad_h[l].data(), lse[l].data(),
                               delta[l].data(), grad_partial, sums[l].data()});
    }
    std::vector<DepthSourceGradient> blocks;
    for (std::size_t i = 0; i < prior.values.size(); ++i) {
      blocks.push_back({prior_list[i], out.prior[i].data(), true});
    }
    inter_block_backward(problem, {blocks, all});
    for (std::size_t l = 0; l < n; ++l) {
      reduce_query_gradient(problem, {sums[l].data(), w[l].data(), g[l].data(), out.w[l].data(), out.g[l].data()});
    }
    return out;
  }

  std::vector<DepthSource> pick_later(std::size_t l) const {
    std::vector<DepthSource> list;
    for (const std::size_t i : later_of(l)) {
      list.push_back(later.list()[i]);
    }
    return list;
  }
};

using Wide = Group<double>;

// Largest error of `gradient` against central differences of group.loss(), relative to the largest gradient.
double finite_difference_error(Wide& group, const Wide::Gradients& gradient) {
  double error = 0;
  double scale = 0;
  const auto check = [&](std::vector<Rows<double>>& values, const std::vector<Rows<double>>& analytic) {
    for (std::size_t k = 0; k < values.size(); ++k) {
      for (std::size_t i = 0; i < values[k].size(); ++i) {
        constexpr double kStep = 1e-4;
        const double at = values[k][i];
        const auto loss_at = [&](double offset) {
          values[k][i] = at + offset;
          return group.loss();
        };
        // Fourth order, so that neither truncation nor rounding reaches 1e-10.
        const double numeric =
            (8 * (loss_at(kStep) - loss_at(-kStep)) - (loss_at(2 * kStep) - loss_at(-2 * kStep))) / (12 * kStep);
        values[k][i] = at;
        error = std::max(error, std::abs(numeric - analytic[k][i]));
        scale = std::max(scale, std::abs(analytic[k][i]));
      }
    }
  };
  check(group.prior.values, gradient.prior);
  check(group.later.values, gradient.later);
  check(group.w, gradient.w);
  check(group.g, gradient.g);
  return error / scale;
}

template <class T>
double difference(const typename Group<T>::Gradients& a, const typename Group<T>::Gradients& b) {
  double worst = 0;
  const auto compare = [&](const std::vector<Rows<T>>& x, const std::vector<Rows<T>>& y) {
    Rows<T> all_x, all_y;
    for (std::size_t k = 0; k < x.size(); ++k) {
      all_x.insert(all_x.end(), x[k].begin(), x[k].end());
      all_y.insert(all_y.end(), y[k].begin(), y[k].end());
    }
    worst = std::max(worst, relative_difference(all_x, all_y));
  };
  compare(a.prior, b.prior);
  compare(a.later, b.later);
  compare(a.w, b.w);
  compare(a.g, b.g);
  return worst;
}

}  // namespace

TEST_CASE("the direct backward agrees with finite differences to 1e-7", "[kernels]") {
  for (const auto kind : {Wide::Kind::partials, Wide::Kind::blocks}) {
    for (const int num_prior : {1, 2, 5}) {
      for (const std::int64_t width : {1, 4, 17}) {
        Wide group(kind, 3, num_prior, 2, width);
        INFO("prior " << num_prior << ", width " << width);
        CHECK(finite_difference_error(group, group.direct()) < 1e-7);
      }
    }
  }
}

TEST_CASE("merge and inter-block backward agree with finite differences to 1e-7", "[kernels]") {
  for (const auto kind : {Wide::Kind::partials, Wide::Kind::blocks}) {
    for (const int num_prior : {1, 2, 5}) {
      for (const std::int64_t width : {1, 4, 17}) {
        Wide group(kind, 4, num_prior, 2, width);
        INFO("prior " << num_prior << ", width " << width);
        CHECK(finite_difference_error(group, group.two_phase()) < 1e-7);
      }
    }
  }
}

TEST_CASE("the batched backward equals one direct backward per sublayer", "[kernels]") {
  for (const int readers : {1, 2, 6, 16}) {
    for (const int num_prior : {1, 2, 3, 8}) {
      INFO("readers " << readers << ", prior " << num_prior);
      using Narrow = Group<float>;
      for (const bool blocks : {false, true}) {
        const Wide wide(blocks ? Wide::Kind::blocks : Wide::Kind::partials, readers, num_prior, 3, 36, 1e-6);
        CHECK(difference<double>(wide.two_phase(), wide.direct()) < 1e-12);
        // Moderate weights: where one nears 1, u - delta cancels, and fp32 leaves few digits of a gradient near 0.
        const Narrow narrow(blocks ? Narrow::Kind::blocks : Narrow::Kind::partials, readers, num_prior, 8, 36, 1e-6,
                            0.15);
        CHECK(difference<float>(narrow.two_phase(), narrow.direct()) < 1e-5);
      }
    }
  }
}

TEST_CASE("a sole source gets the gradient bit for bit and its query exactly none", "[kernels]") {
  const Group<float> group(Group<float>::Kind::partials, 1, 1, 5, 40, 1e-6);
  for (const auto& gradient : {group.direct(), group.two_phase()}) {
    CHECK(same_bits(gradient.prior[0], group.grad_h[0]));
    CHECK(same_bits(gradient.w[0], zeros<float>(40)));
    CHECK(same_bits(gradient.g[0], zeros<float>(40)));
  }
}

TEST_CASE("a sole source needs no statistics and honours first touch", "[kernels]") {
  const DepthProblem problem{2, 3, Storage::fp32, 1e-6};
  const SourceSet<float> sources(problem, 1, "sole");
  const Rows<float> q = random_rows<float>("q", 3, 50.0);
  const Rows<float> grad_h = random_rows<float>("G", 6);
  const Rows<float> unknown = poison<float>(2);
  for (const bool batched : {false, true}) {
    Rows<float> fresh = poison<float>(6);
    Rows<float> sums = zeros<float>(3);
    const DepthSourceGradient source{sources.list()[0], fresh.data(), true};
    if (batched) {
      const InterBlockReader reader{q.data(), grad_h.data(), unknown.data(), unknown.data(), sums.data(), true};
      inter_block_backward(problem, {{&source, 1}, {&reader, 1}});
    } else {
      aggregate_backward(problem, {{&source, 1}, q.data(), grad_h.data(), sums.data()});
    }
    CHECK(same_bits(fresh, grad_h));
    CHECK(same_bits(sums, zeros<float>(3)));
  }
}

TEST_CASE("first touch overwrites an accumulator and a later touch adds to it", "[kernels]") {
  const DepthProblem problem{3, 7, Storage::fp64, 1e-6};
  const SourceSet<double> sources(problem, 2, "touch");
  const Rows<double> q = random_rows<double>("q", 7);
  const Rows<double> grad_h = random_rows<double>("G", 21);
  const Rows<double> arrived = random_rows<double>("arrived", 21);
  const auto run = [&](bool first_touch, Rows<double>& a, Rows<double>& b) {
    Rows<double> sums = zeros<double>(7);
    const std::vector<DepthSourceGradient> list{{sources.list()[0], a.data(), first_touch},
                                                {sources.list()[1], b.data(), first_touch}};
    aggregate_backward(problem, {list, q.data(), grad_h.data(), sums.data()});
  };
  Rows<double> fresh_a = poison<double>(21);
  Rows<double> fresh_b = poison<double>(21);
  run(true, fresh_a, fresh_b);
  Rows<double> added_a = arrived;
  Rows<double> added_b = arrived;
  run(false, added_a, added_b);
  for (std::size_t i = 0; i < 21; ++i) {
    CHECK(added_a[i] == Approx(arrived[i] + fresh_a[i]).epsilon(1e-13).margin(1e-13));
    CHECK(added_b[i] == Approx(arrived[i] + fresh_b[i]).epsilon(1e-13).margin(1e-13));
  }
}

TEST_CASE("query gradients have the same bits however the tokens are divided into runs", "[kernels]") {
  constexpr std::int64_t kTokens = 3 * kTokensPerRun + 45;
  constexpr std::int64_t kWidth = 5;
  const DepthProblem problem{kTokens, kWidth, Storage::fp32, 1e-6};
  const SourceSet<float> sources(problem, 3, "runs");
  const Rows<float> q = random_rows<float>("q", kWidth);
  const Rows<float> grad_h = random_rows<float>("G", kTokens * kWidth);
  REQUIRE(num_token_runs(kTokens) == 4);
  CHECK(num_token_runs(1) == 1);
  CHECK(num_token_runs(256) == 1);
  CHECK(num_token_runs(257) == 2);

  // Workers take whole runs, last first; each starts at its own row.
  const auto run = [&](const std::vector<std::pair<std::int64_t, std::int64_t>>& shares) {
    Rows<float> sums = zeros<float>(4 * kWidth);
    Rows<float> scratch = zeros<float>(kTokens * kWidth);
    for (const auto& [begin, end] : shares) {
      std::vector<DepthSourceGradient> list;
      for (std::size_t i = 0; i < 3; ++i) {
        list.push_back({{sources.values[i].data() + begin * kWidth, sources.scales[i].data() + begin},
                        scratch.data() + begin * kWidth,
                        true});
      }
      DepthProblem share = problem;
      share.tokens = end - begin;
      aggregate_backward(
          share, {list, q.data(), grad_h.data() + begin * kWidth, sums.data() + begin / kTokensPerRun * kWidth});
    }
    Rows<float> dw = zeros<float>(kWidth);
    Rows<float> dg = zeros<float>(kWidth);
    const Rows<float> ones(kWidth, 1.0F);
    reduce_query_gradient(problem, {sums.data(), q.data(), ones.data(), dw.data(), dg.data()});
    return dw;
  };
  const Rows<float> whole = run({{0, kTokens}});
  CHECK(same_bits(run({{2 * kTokensPerRun, kTokens}, {0, 2 * kTokensPerRun}}), whole));
  CHECK(same_bits(run({{3 * kTokensPerRun, kTokens}, {kTokensPerRun, 3 * kTokensPerRun}, {0, kTokensPerRun}}), whole));
}

TEST_CASE("the reduction adds dq*gain to the query's gradient and dq*query to the gain's", "[kernels]") {
  for (const std::int64_t runs : {1, 2, 3, 5, 8}) {
    const DepthProblem problem{runs * kTokensPerRun, 3, Storage::fp64, 1e-6};
    Rows<double> sums = random_rows<double>("sums", runs * 3);
    Rows<double> dq = zeros<double>(3);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      dq[i % 3] += sums[i];
    }
    const Rows<double> w{2, 3, 5};
    const Rows<double> g{7, 11, 13};
    Rows<double> dw{1, 1, 1};
    Rows<double> dg{-1, -1, -1};
    reduce_query_gradient(problem, {sums.data(), w.data(), g.data(), dw.data(), dg.data()});
    for (std::size_t j = 0; j < 3; ++j) {
      CHECK(dw[j] == Approx(1 + dq[j] * g[j]).epsilon(1e-12));
      CHECK(dg[j] == Approx(-1 + dq[j] * w[j]).epsilon(1e-12));
    }
  }
}

TEST_CASE("backward operators refuse empty lists", "[kernels]") {
  const DepthProblem problem{1, 1, Storage::fp32, 1e-6};
  CHECK_THROWS_AS(aggregate_backward(problem, {}), std::invalid_argument);
  CHECK_THROWS_AS(inter_block_backward(problem, {}), std::invalid_argument);
  float gradient = 0;
  MergeBackward merge;
  merge.grad_partial = &gradient;
  CHECK_THROWS_AS(merge_backward(problem, merge), std::invalid_argument);
}

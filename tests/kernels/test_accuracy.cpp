// SPDX-License-Identifier: Apache-2.0
// fp32 operators against double arithmetic on the same stored inputs. Values are as uneven as blocks of a real model:
// each row of a source has its own log-normal size. Bounds scale with |q| sqrt(d), the size of a logit before
// normalisation (Cauchy and Schwarz), and with sums of magnitudes where terms cancel.
#include <cmath>

#include "kernels/support/naive.hpp"
#include "plumb/kernels/depth_attention_backward.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr double kHalfUlp = 0x1.0p-24;  // half a unit in the last place of fp32, relative

struct Setting {
  std::int64_t tokens;
  std::int64_t width;
  int num_sources;
  int num_readers;
  double query_norm;
};

template <class T>
struct Operands {
  DepthProblem problem;
  SourceSet<T> sources;
  std::vector<Rows<T>> queries;
  std::vector<Rows<T>> grads;
};

Operands<float> make(const Setting& setting) {
  const DepthProblem problem{setting.tokens, setting.width, Storage::fp32, 1e-6};
  Operands<float> out{problem, SourceSet<float>(problem, setting.num_sources, "accuracy"), {}, {}};
  const auto width = static_cast<std::size_t>(setting.width);
  for (int i = 0; i < setting.num_sources; ++i) {
    const CounterRng sizes(11, "size " + std::to_string(i));
    Rows<float>& rows = out.sources.values[static_cast<std::size_t>(i)];
    for (std::size_t k = 0; k < rows.size(); ++k) {
      rows[k] *= static_cast<float>(std::exp(sizes.normal(k / width)));
    }
  }
  out.sources.rescale(problem);
  for (int l = 0; l < setting.num_readers; ++l) {
    const double spread = setting.query_norm / std::sqrt(static_cast<double>(setting.width));
    out.queries.push_back(random_rows<float>("q " + std::to_string(l), setting.width, spread));
    out.grads.push_back(random_rows<float>("G " + std::to_string(l), setting.tokens * setting.width));
  }
  return out;
}

// The same numbers in double, statistics taken anew.
Operands<double> widen(const Operands<float>& in) {
  DepthProblem problem = in.problem;
  problem.storage = Storage::fp64;
  Operands<double> out{problem, SourceSet<double>(problem, 0, ""), {}, {}};
  for (const Rows<float>& each : in.sources.values) {
    out.sources.values.push_back(convert<double>(each));
    out.sources.scales.push_back(zeros<double>(problem.tokens));
  }
  out.sources.rescale(problem);
  for (std::size_t l = 0; l < in.queries.size(); ++l) {
    out.queries.push_back(convert<double>(in.queries[l]));
    out.grads.push_back(convert<double>(in.grads[l]));
  }
  return out;
}

// Gradients of all sources and queries from the batched backward.
template <class T>
struct Batched {
  std::vector<Rows<T>> dv;
  std::vector<Rows<T>> dq;
  std::vector<Rows<T>> lse;
  std::vector<Rows<T>> delta;

  explicit Batched(const Operands<T>& in) {
    const DepthProblem& problem = in.problem;
    const std::size_t readers = in.queries.size();
    std::vector<Rows<T>> o(readers, zeros<T>(problem.tokens * problem.width));
    lse.assign(readers, zeros<T>(problem.tokens));
    delta = lse;
    std::vector<Rows<T>> sums(readers, zeros<T>(num_token_runs(problem.tokens) * problem.width));
    const auto list = in.sources.list();
    std::vector<InterBlockReader> all;
    for (std::size_t l = 0; l < readers; ++l) {
      const PhaseOneQuery one{in.queries[l].data(), o[l].data(), lse[l].data()};
      phase_one_forward(problem, {list, {&one, 1}});
      merge_backward(problem, {o[l].data(),
                               lse[l].data(),
                               {},
                               in.queries[l].data(),
                               in.grads[l].data(),
                               lse[l].data(),
                               delta[l].data(),
                               nullptr,
                               nullptr});
      all.push_back({in.queries[l].data(), in.grads[l].data(), lse[l].data(), delta[l].data(), sums[l].data(), false});
    }
    dv.assign(list.size(), poison<T>(problem.tokens * problem.width));
    std::vector<DepthSourceGradient> gradients;
    for (std::size_t i = 0; i < list.size(); ++i) {
      gradients.push_back({list[i], dv[i].data(), true});
    }
    inter_block_backward(problem, {gradients, all});
    const Rows<T> ones(static_cast<std::size_t>(problem.width), T(1));
    for (std::size_t l = 0; l < readers; ++l) {
      dq.push_back(zeros<T>(problem.width));
      Rows<T> unused = zeros<T>(problem.width);
      reduce_query_gradient(problem, {sums[l].data(), in.queries[l].data(), ones.data(), dq[l].data(), unused.data()});
    }
  }
};

void check_forward(const Setting& setting) {
  INFO("width " << setting.width << ", sources " << setting.num_sources << ", |q| " << setting.query_norm);
  const Operands<float> in = make(setting);
  const Operands<double> exact = widen(in);
  const Rows<double> ones(static_cast<std::size_t>(setting.width), 1.0);
  const auto list = in.sources.list();
  for (std::size_t l = 0; l < in.queries.size(); ++l) {
    const auto expected =
        NaiveAggregate{setting.tokens, setting.width, in.problem.eps}(exact.sources.values, exact.queries[l], ones);
    double q_norm = 0;
    for (const double each : exact.queries[l]) {
      q_norm += each * each;
    }
    q_norm = std::sqrt(q_norm);
    const double scale = 2 * kHalfUlp * q_norm * std::sqrt(static_cast<double>(setting.width));

    double worst_logit = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      Rows<float> s = poison<float>(setting.tokens);
      aggregate_forward(in.problem, {{&list[i], 1}, in.queries[l].data(), nullptr, s.data()});
      for (std::size_t t = 0; t < s.size(); ++t) {
        const double error = std::abs(static_cast<double>(s[t]) - expected.s[i][t]);
        CHECK(error <= scale + 4 * kHalfUlp * std::abs(expected.s[i][t]));
        worst_logit = std::max(worst_logit, error);
      }
    }
    Rows<float> o = poison<float>(setting.tokens * setting.width);
    Rows<float> lse = poison<float>(setting.tokens);
    const PhaseOneQuery one{in.queries[l].data(), o.data(), lse.data()};
    phase_one_forward(in.problem, {list, {&one, 1}});
    for (std::size_t t = 0; t < lse.size(); ++t) {
      CHECK(std::abs(static_cast<double>(lse[t]) - expected.lse[t]) <=
            scale + 12 * kHalfUlp * std::max(1.0, std::abs(expected.lse[t])));
    }
    CHECK(relative_l2(o, expected.h) <= 3e-6);
    for (std::size_t k = 0; k < o.size(); ++k) {
      double magnitude = 0;
      for (std::size_t i = 0; i < list.size(); ++i) {
        magnitude += expected.p[i][k / static_cast<std::size_t>(setting.width)] * std::abs(exact.sources.values[i][k]);
      }
      CHECK(std::abs(static_cast<double>(o[k]) - expected.h[k]) <= (4 * worst_logit + 16 * kHalfUlp) * magnitude);
    }
  }
}

// sum over tokens and sources of p (|u| + |delta|) |k|: what dq would be if nothing cancelled.
Rows<double> sum_of_magnitudes(const Operands<double>& in, const Batched<double>& exact, std::size_t l) {
  const auto width = static_cast<std::size_t>(in.problem.width);
  Rows<double> sum(width, 0.0);
  for (std::size_t i = 0; i < in.sources.values.size(); ++i) {
    for (std::size_t t = 0; t < static_cast<std::size_t>(in.problem.tokens); ++t) {
      const double* v = in.sources.values[i].data() + t * width;
      double u = 0;
      double s = 0;
      for (std::size_t j = 0; j < width; ++j) {
        u += in.grads[l][t * width + j] * v[j];
        s += in.queries[l][j] * v[j] * in.sources.scales[i][t];
      }
      const double weight = std::exp(s - exact.lse[l][t]) * (std::abs(u) + std::abs(exact.delta[l][t]));
      for (std::size_t j = 0; j < width; ++j) {
        sum[j] += weight * std::abs(v[j]) * in.sources.scales[i][t];
      }
    }
  }
  return sum;
}

// With few terms and one weight near 1 dq is what cancellation leaves: only the bound by magnitudes holds then.
void check_backward(const Setting& setting, bool many_terms) {
  INFO("width " << setting.width << ", sources " << setting.num_sources << ", |q| " << setting.query_norm);
  const Operands<float> in = make(setting);
  const Operands<double> wide = widen(in);
  const Batched<float> got(in);
  const Batched<double> expected(wide);
  for (std::size_t i = 0; i < got.dv.size(); ++i) {
    CHECK(relative_l2(got.dv[i], expected.dv[i]) <= 1e-5);
  }
  for (std::size_t l = 0; l < got.dq.size(); ++l) {
    if (many_terms) {
      CHECK(relative_l2(got.dq[l], expected.dq[l]) <= 2e-5);
    }
    const Rows<double> bound = sum_of_magnitudes(wide, expected, l);
    for (std::size_t j = 0; j < bound.size(); ++j) {
      CHECK(std::abs(static_cast<double>(got.dq[l][j]) - expected.dq[l][j]) <= 5e-6 * bound[j]);
    }
  }
}

}  // namespace

TEST_CASE("fp32 logits, log sums and mixtures keep their error bounds", "[kernels]") {
  for (const double query_norm : {1.0, 8.0}) {
    for (const std::int64_t width : {100, 1000, 2304}) {
      check_forward({2, width, 8, 3, query_norm});
    }
    check_forward({2, 100, 17, 3, query_norm});
  }
}

TEST_CASE("fp32 gradients of sources and queries keep their error bounds over 24 sublayers", "[kernels]") {
  for (const double query_norm : {1.0, 8.0}) {
    check_backward({40, 100, 8, 24, query_norm}, true);
    check_backward({12, 1000, 3, 6, query_norm}, false);
  }
  check_backward({300, 24, 2, 16, 2.0}, true);
}

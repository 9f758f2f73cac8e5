// SPDX-License-Identifier: Apache-2.0
// gpu_gradients.hpp: all gradients of a block on simulated blocks, and the same in double, sublayer by sublayer.
#pragma once

#include <cmath>

#include "kernels/cuda/gpu_case.hpp"
#include "support/catch.hpp"

namespace plumb::testing {

template <class A>
struct Gradients {
  std::vector<Rows<A>> sources;
  std::vector<Rows<A>> partials;
  std::vector<Rows<A>> queries;
};

template <class V>
Gradients<float> on_gpu(const CpuCase<V>& in, simt::Order order = simt::Order::ascending, bool tensor_cores = false,
                        int tokens_in_turn = 2) {
  using cuda_detail::Operators;
  const DepthProblem& problem = in.problem;
  const std::int64_t size = problem.tokens * problem.width;
  const std::size_t n = in.sources.size();
  const std::size_t readers = in.queries.size();
  simt::Machine gpu(order);
  gpu.take_in_turn(tokens_in_turn);
  GpuWorkspace workspace;
  Gradients<float> out;
  const auto list = in.list();
  const DepthSource later{in.partial.data(), nullptr};
  std::vector<Rows<float>> delta(readers, poison<float>(problem.tokens));
  std::vector<Rows<float>> lse = delta;
  std::vector<Rows<float>> sums(readers, zeros<float>(num_token_runs(problem.tokens) * problem.width));
  std::vector<InterBlockReader> all;
  Rows<V> h = not_a_number<V>(size);
  for (std::size_t l = 0; l < readers; ++l) {
    Rows<float> o = poison<float>(size);
    Rows<float> lse_o = poison<float>(problem.tokens);
    const void* query = in.queries[l].data();
    const PhaseOneQuery one{query, o.data(), lse_o.data()};
    Operators<V>::phase_one(gpu, problem, {list, {&one, 1}, true}, workspace(problem, n, 1));
    MergeForward merge{o.data(), lse_o.data(), {&later, 1}, query, h.data(), lse[l].data()};
    merge.fp32_mixture = true;
    Operators<V>::merge(gpu, problem, merge);
    out.partials.push_back(zeros<float>(size));
    Operators<V>::merge_backward(gpu, problem,
                                 {o.data(),
                                  lse_o.data(),
                                  {&later, 1},
                                  query,
                                  in.grads[l].data(),
                                  lse[l].data(),
                                  delta[l].data(),
                                  out.partials[l].data(),
                                  sums[l].data()},
                                 workspace(problem, 1, 1));
    all.push_back({query, in.grads[l].data(), lse[l].data(), delta[l].data(), sums[l].data(), false});
  }
  out.sources.assign(n, poison<float>(size));
  std::vector<DepthSourceGradient> gradients;
  for (std::size_t i = 0; i < n; ++i) {
    gradients.push_back({list[i], out.sources[i].data(), true});
  }
  Operators<V>::inter_block_backward(gpu, problem, {gradients, all}, workspace(problem, n, readers), tensor_cores);
  for (std::size_t l = 0; l < readers; ++l) {
    // Reduced by the GPU; the reference's own reduction must agree bit for bit.
    Rows<float> again = sums[l];
    const Rows<float> ones(static_cast<std::size_t>(problem.width), 1.0f);
    Rows<float> dq = zeros<float>(problem.width);
    Rows<float> dgain = dq;
    Operators<V>::reduce_query_gradient(gpu, problem,
                                        {sums[l].data(), in.queries[l].data(), ones.data(), dq.data(), dgain.data()});
    CHECK(same_rows(dq, query_gradient(problem, again, in.queries[l])));
    out.queries.push_back(dq);
  }
  return out;
}

/// Each sublayer's aggregate on its own, in double. `terms`: sum over tokens and sources of p (|u| + |delta|) |k|.
struct Exact {
  Gradients<double> gradients;
  std::vector<Rows<double>> terms;

  explicit Exact(const WideCase& in) {
    const DepthProblem& problem = in.problem;
    const std::int64_t size = problem.tokens * problem.width;
    const std::size_t n = in.sources.size() - 1;
    const auto list = in.list(n + 1);
    gradients.sources.assign(n, zeros<double>(size));
    for (std::size_t l = 0; l < in.queries.size(); ++l) {
      gradients.partials.push_back(zeros<double>(size));
      Rows<double> sums = zeros<double>(num_token_runs(problem.tokens) * problem.width);
      std::vector<DepthSourceGradient> all;
      for (std::size_t i = 0; i < n; ++i) {
        all.push_back({list[i], gradients.sources[i].data(), false});
      }
      all.push_back({list[n], gradients.partials[l].data(), false});
      aggregate_backward(problem, {all, in.queries[l].data(), in.grads[l].data(), sums.data()});
      gradients.queries.push_back(query_gradient(problem, sums, in.queries[l]));
      terms.push_back(terms_of(in, list, l));
    }
  }

  static Rows<double> terms_of(const WideCase& in, const std::vector<DepthSource>& list, std::size_t l) {
    const auto width = static_cast<std::size_t>(in.problem.width);
    Rows<double> lse = zeros<double>(in.problem.tokens);
    aggregate_forward(in.problem, {list, in.queries[l].data(), nullptr, lse.data()});
    std::vector<Rows<double>> logits(list.size(), lse);
    for (std::size_t i = 0; i < list.size(); ++i) {
      aggregate_forward(in.problem, {{&list[i], 1}, in.queries[l].data(), nullptr, logits[i].data()});
    }
    Rows<double> sum(width, 0.0);
    for (std::size_t t = 0; t < lse.size(); ++t) {
      std::vector<double> u(list.size(), 0.0);
      double delta = 0;
      for (std::size_t i = 0; i < list.size(); ++i) {
        for (std::size_t j = 0; j < width; ++j) {
          u[i] += in.grads[l][t * width + j] * in.sources[i][t * width + j];
        }
        delta += std::exp(logits[i][t] - lse[t]) * u[i];
      }
      for (std::size_t i = 0; i < list.size(); ++i) {
        const double weight = std::exp(logits[i][t] - lse[t]) * (std::abs(u[i]) + std::abs(delta)) * in.scales[i][t];
        for (std::size_t j = 0; j < width; ++j) {
          sum[j] += weight * std::abs(in.sources[i][t * width + j]);
        }
      }
    }
    return sum;
  }
};

/// The bounds of all gradients; with `many` tokens also the relative one of dq.
template <class V>
void check_backward(std::int64_t tokens, std::int64_t width, int n, int readers, double query_norm, bool many,
                    bool tensor_cores = false) {
  INFO(to_string(kFormat<V>) << ", tokens " << tokens << ", width " << width << ", sources " << n << ", readers "
                             << readers << ", |q| " << query_norm);
  const CpuCase<V> in(tokens, width, n, readers, query_norm);
  const WideCase wide(in);
  const Exact expected(wide);
  const Gradients<float> got = on_gpu(in, simt::Order::ascending, tensor_cores);
  for (std::size_t i = 0; i < got.sources.size(); ++i) {
    CHECK(relative_l2(got.sources[i], expected.gradients.sources[i]) <= 1e-5);
  }
  for (std::size_t l = 0; l < got.queries.size(); ++l) {
    CHECK(relative_l2(got.partials[l], expected.gradients.partials[l]) <= 1e-5);
    if (many) {
      CHECK(relative_l2(got.queries[l], expected.gradients.queries[l]) <= 2e-5);
    }
    double worst = 0;
    for (std::size_t j = 0; j < static_cast<std::size_t>(width); ++j) {
      const double error = std::abs(static_cast<double>(got.queries[l][j]) - expected.gradients.queries[l][j]);
      const double share = error / expected.terms[l][j];
      worst = share <= worst ? worst : share;
    }
    CHECK(worst <= 5e-6);
  }
}

}  // namespace plumb::testing

// SPDX-License-Identifier: Apache-2.0
// gpu_gradients.hpp: all gradients of a block on simulated blocks.
#pragma once

#include "kernels/cuda/gpu_case.hpp"
#include "kernels/support/exact_gradients.hpp"
#include "support/catch.hpp"

namespace plumb::testing {

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

template <class V>
void check_backward(std::int64_t tokens, std::int64_t width, int n, int readers, double query_norm, bool many,
                    bool tensor_cores = false) {
  INFO(to_string(kFormat<V>) << ", tokens " << tokens << ", width " << width << ", sources " << n << ", readers "
                             << readers << ", |q| " << query_norm);
  const CpuCase<V> in(tokens, width, n, readers, query_norm);
  check_gradients(on_gpu(in, simt::Order::ascending, tensor_cores), Exact(WideCase(in)), many);
}

}  // namespace plumb::testing

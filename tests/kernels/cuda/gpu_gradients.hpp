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
  GpuRun<V> run(order, tensor_cores, tokens_in_turn);
  return two_phase_gradients(in, run);
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

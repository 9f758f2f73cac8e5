// SPDX-License-Identifier: Apache-2.0
//
// runtime_bench.hpp: what the executor itself costs when the stages do nothing and the tensors are tiny.
#pragma once

namespace plumb::bench {

struct RuntimeCost {
  double dispatch_us = 0;  // P=1 V=8, one thread: wall per action
  double handover_us = 0;  // 4 ranks in this process: wall of a step per action of one rank
};

// Medians over steps; takes about a second.
RuntimeCost measure_runtime();

}  // namespace plumb::bench

// SPDX-License-Identifier: Apache-2.0
#include "train_lm/launch.hpp"

#include <vector>

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include "plumb/runtime/rank_threads.hpp"

namespace plumb::lm {

void set_compute_threads(int threads) {
  at::set_num_threads(threads);
  // OpenBLAS reads its environment while it is loaded, before main; this call is as good, and the name is absent under
  // other BLAS libraries, which torch itself sets.
  if (void* const symbol = dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) {
    reinterpret_cast<void (*)(int)>(symbol)(threads);
  }
}

TrainResult train_inproc(const TrainPlan& plan, const Text& text, StepListener* listener) {
  const int num_ranks = plan.chosen().layout.pp();
  if (num_ranks == 1) {
    return train(plan, text, RankLinks{}, listener);
  }
  std::vector<TrainResult> results(static_cast<std::size_t>(num_ranks));
  run_ranks_as_threads(num_ranks, [&](RankId rank, Transport& transport, ControlPlane& control) {
    results[rank.index()] = train(plan, text, {rank, &transport, &control}, listener);
  });
  return results.front();
}

}  // namespace plumb::lm

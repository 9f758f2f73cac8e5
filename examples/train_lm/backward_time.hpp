// SPDX-License-Identifier: Apache-2.0
//
// backward_time.hpp: how a rank's time in split backwards divides into its halves, input (I) and weights (W).
//
// An observer of the executor that reads the CPU time of the computing thread around each I and W, so that waiting and
// other processes do not count; nor do further threads that torch may use (--threads). Threads: the executor's caller.
#pragma once

#include <chrono>

#include "plumb/runtime/observer.hpp"

namespace plumb::lm {

class BackwardTime final : public StepObserver {
 public:
  void compute_starting(RankId rank, const Compute& compute) override;
  void compute_finished(RankId rank, const Compute& compute) override;

  // Since construction.
  std::chrono::nanoseconds of_inputs() const { return of_inputs_; }
  std::chrono::nanoseconds of_weights() const { return of_weights_; }

 private:
  std::chrono::nanoseconds started_{0};
  std::chrono::nanoseconds of_inputs_{0};
  std::chrono::nanoseconds of_weights_{0};
};

}  // namespace plumb::lm

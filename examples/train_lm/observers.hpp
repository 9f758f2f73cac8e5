// SPDX-License-Identifier: Apache-2.0
//
// observers.hpp: several observers of one executor, told in order. Ownership: the caller's. Threads: as StepObserver.
#pragma once

#include <utility>
#include <vector>

#include "plumb/runtime/observer.hpp"

namespace plumb::lm {

class Observers final : public StepObserver {
 public:
  explicit Observers(std::vector<StepObserver*> all) : all_(std::move(all)) {}

  void compute_starting(RankId rank, const Compute& compute) override {
    for (StepObserver* const each : all_)
      each->compute_starting(rank, compute);
  }
  void compute_finished(RankId rank, const Compute& compute) override {
    for (StepObserver* const each : all_)
      each->compute_finished(rank, compute);
  }
  void message_starting(RankId rank, const MessageEvent& event) override {
    for (StepObserver* const each : all_)
      each->message_starting(rank, event);
  }
  void message_finished(RankId rank, const MessageEvent& event) override {
    for (StepObserver* const each : all_)
      each->message_finished(rank, event);
  }

 private:
  std::vector<StepObserver*> all_;
};

}  // namespace plumb::lm

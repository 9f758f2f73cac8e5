// SPDX-License-Identifier: Apache-2.0
#include "train_lm/backward_time.hpp"

#include <ctime>

namespace plumb::lm {

namespace {

std::chrono::nanoseconds thread_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

bool is_half(Op op) { return op == Op::backward_input || op == Op::backward_weight; }

}  // namespace

void BackwardTime::compute_starting(RankId, const Compute& compute) {
  if (is_half(compute.op)) {
    started_ = thread_cpu_time();
  }
}

void BackwardTime::compute_finished(RankId, const Compute& compute) {
  if (is_half(compute.op)) {
    (compute.op == Op::backward_input ? of_inputs_ : of_weights_) += thread_cpu_time() - started_;
  }
}

}  // namespace plumb::lm

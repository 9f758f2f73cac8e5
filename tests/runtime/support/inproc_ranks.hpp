// SPDX-License-Identifier: Apache-2.0
//
// inproc_ranks.hpp (tests): plays all ranks of a job as threads and gives back what each of them threw.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "plumb/comm/inproc.hpp"
#include "plumb/runtime/executor.hpp"

namespace plumb::test {

struct RankPlace {
  RankId rank;
  Transport& transport;
  ControlPlane& control;
};

// [rank]: null if `play` returned.
std::vector<std::exception_ptr> on_ranks(int num_ranks, const std::function<void(const RankPlace&)>& play);

// As on_ranks, but rethrows the first exception.
void on_all_ranks(int num_ranks, const std::function<void(const RankPlace&)>& play);

// what() of an exception, "" of null.
std::string text_of(const std::exception_ptr& error);

// One step of a program on threads; results by rank.
std::vector<StepResult> run_on_threads(std::shared_ptr<const Program> program, const StageTable& stages,
                                       const SlotShape& shape, const ExecutorOptions& options = {});

}  // namespace plumb::test

// SPDX-License-Identifier: Apache-2.0
//
// inproc_ranks.hpp (tests): plays all ranks of a job as threads and gives back what each of them threw.
#pragma once

#include <exception>
#include <functional>
#include <stdexcept>
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

// Catch's assertions belong to one thread; ranks on threads throw instead.
inline void must(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("expected: " + what);
}

// what() of the Error that `call` throws; it must.
template <class Error, class Call>
std::string thrown_by(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  throw std::logic_error("expected: an exception");
}

// One step of a program on threads; results by rank.
std::vector<StepResult> run_on_threads(std::shared_ptr<const Program> program, const StageTable& stages,
                                       const SlotShape& shape, const ExecutorOptions& options = {});

}  // namespace plumb::test

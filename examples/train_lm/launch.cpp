// SPDX-License-Identifier: Apache-2.0
#include "train_lm/launch.hpp"

#include <exception>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include "plumb/comm/inproc.hpp"
#include "plumb/comm/transport_error.hpp"
#include "plumb/runtime/run_error.hpp"

namespace plumb::lm {

void set_compute_threads(int threads) {
  at::set_num_threads(threads);
  // OpenBLAS reads its environment while it is loaded, before main; this call is as good, and the name is absent under
  // other BLAS libraries, which torch itself sets.
  if (void* const symbol = dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) {
    reinterpret_cast<void (*)(int)>(symbol)(threads);
  }
}

namespace {

// Whether this failure only tells that another rank failed first.
bool is_echo(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const PeerError& error) {
    return error.kind() == RunErrorKind::peer;
  } catch (const TransportError& error) {
    return error.fault().kind == TransportErrorKind::peer;
  } catch (...) {
    return false;
  }
}

}  // namespace

TrainResult train_inproc(const TrainPlan& plan, const Text& text, StepListener* listener) {
  const int num_ranks = plan.chosen().layout.pp();
  if (num_ranks == 1) {
    return train(plan, text, RankLinks{}, listener);
  }
  InprocHub hub(num_ranks);
  std::vector<TrainResult> results(static_cast<std::size_t>(num_ranks));
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(num_ranks));
  const auto play = [&](int number) {
    const PeerId peer{number};
    const auto transport = hub.make_transport(peer);
    const auto control = hub.make_control(peer);
    const auto index = static_cast<std::size_t>(number);
    try {
      results[index] = train(plan, text, {RankId(number), transport.get(), control.get()}, listener);
    } catch (const std::exception& error) {
      failures[index] = std::current_exception();
      transport->fail(error.what());
    }
  };
  std::vector<std::thread> threads;
  for (int number = 0; number < num_ranks; ++number) {
    threads.emplace_back(play, number);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::exception_ptr echo;
  for (const std::exception_ptr& failure : failures) {
    if (failure && !is_echo(failure)) {
      std::rethrow_exception(failure);
    }
    echo = failure ? failure : echo;
  }
  if (echo) {
    std::rethrow_exception(echo);
  }
  return results.front();
}

}  // namespace plumb::lm

// SPDX-License-Identifier: Apache-2.0
#include "plumb/runtime/rank_threads.hpp"

#include <thread>
#include <vector>

#include "plumb/comm/inproc.hpp"
#include "plumb/comm/transport_error.hpp"
#include "plumb/runtime/run_error.hpp"

namespace plumb {

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

void run_ranks_as_threads(int num_ranks, const std::function<void(RankId, Transport&, ControlPlane&)>& play) {
  InprocHub hub(num_ranks);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(num_ranks));
  const auto play_one = [&](std::int32_t number) {
    const auto transport = hub.make_transport(PeerId{number});
    const auto control = hub.make_control(PeerId{number});
    try {
      play(RankId(number), *transport, *control);
    } catch (const std::exception& error) {
      failures[static_cast<std::size_t>(number)] = std::current_exception();
      transport->fail(error.what());
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::int32_t number = 0; number < num_ranks; ++number)
      threads.emplace_back(play_one, number);
  }
  std::exception_ptr echo;
  for (const std::exception_ptr& failure : failures) {
    if (failure && !is_echo(failure)) std::rethrow_exception(failure);
    if (failure) echo = failure;
  }
  if (echo) std::rethrow_exception(echo);
}

}  // namespace plumb

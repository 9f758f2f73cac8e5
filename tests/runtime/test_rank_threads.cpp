// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "plumb/comm/transport_error.hpp"
#include "plumb/runtime/rank_threads.hpp"
#include "plumb/runtime/run_error.hpp"
#include "support/catch.hpp"

using namespace plumb;

namespace {

constexpr std::chrono::seconds patience{30};

}  // namespace

TEST_CASE("ranks as threads are each played once, and hear each other", "[runtime]") {
  std::vector<std::vector<std::string>> heard(5);
  run_ranks_as_threads(5, [&](RankId rank, Transport&, ControlPlane& control) {
    heard[rank.index()] = control.exchange("rank " + std::to_string(rank.value), patience);
  });
  const std::vector<std::string> all{"rank 0", "rank 1", "rank 2", "rank 3", "rank 4"};
  CHECK(heard == std::vector<std::vector<std::string>>(5, all));
  CHECK_THROWS_AS(run_ranks_as_threads(0, nullptr), std::invalid_argument);
}

TEST_CASE("of ranks as threads the cause of a failure is thrown, whichever rank it is, and the others end", "[runtime]") {
  for (const int culprit : {0, 2, 3}) {
    std::vector<std::exception_ptr> echoes(4);
    const auto play = [&](RankId rank, Transport&, ControlPlane& control) {
      if (rank.value == culprit) throw std::logic_error("rank " + std::to_string(culprit) + " broke");
      try {
        control.barrier(patience);
      } catch (...) {
        echoes[rank.index()] = std::current_exception();
        throw;
      }
    };
    CHECK_THROWS_WITH(run_ranks_as_threads(4, play), "rank " + std::to_string(culprit) + " broke");
    for (int rank = 0; rank < 4; ++rank) {
      const std::exception_ptr& echo = echoes[static_cast<std::size_t>(rank)];
      CHECK((rank == culprit ? !echo : echo && is_echo(echo)));
    }
  }
}

TEST_CASE("where every failure is an echo one of them is thrown", "[runtime]") {
  const PeerError echo(RunErrorKind::peer, RankId(1), "3F2", RankId(0), "rank 0 is gone");
  CHECK(is_echo(std::make_exception_ptr(echo)));
  CHECK_FALSE(is_echo(std::make_exception_ptr(PeerError(RunErrorKind::net, RankId(1), "", {}, "no route"))));
  CHECK_FALSE(is_echo(std::make_exception_ptr(std::runtime_error("disk full"))));
  CHECK_FALSE(is_echo(std::make_exception_ptr(7)));
  CHECK_THROWS_AS(run_ranks_as_threads(2, [&](RankId, Transport&, ControlPlane&) { throw echo; }), PeerError);
}

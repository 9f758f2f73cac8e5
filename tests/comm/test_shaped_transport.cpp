// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <stdexcept>
#include <thread>

#include "conformance.hpp"
#include "inproc_ranks.hpp"
#include "plumb/comm/inproc.hpp"
#include "plumb/comm/shaped_transport.hpp"
#include "support/catch.hpp"
#include "traffic.hpp"

namespace plumb {
namespace {

using namespace std::chrono_literals;
using testing::ConformanceCase;

void run_shaped(std::span<const ConformanceCase> cases, std::initializer_list<std::int32_t> rank_counts,
                const LinkShape& shape) {
  for (const std::int32_t num_ranks : rank_counts) {
    for (const ConformanceCase& c : cases) {
      if (num_ranks < c.min_ranks) continue;
      INFO(c.sentence << ", " << num_ranks << " ranks");
      EmulatedLinks links(num_ranks, 1 << 14, shape);
      CHECK_NOTHROW(testing::run_as_threads(num_ranks, [&](testing::RankEnds ends) {
        ShapedTransport shaped(ends.transport, links);
        try {
          c.body({shaped, ends.control});
        } catch (const std::exception& error) {
          shaped.fail(error.what());
          throw;
        }
      }));
    }
  }
}

TEST_CASE("channels over emulated links keep the contract", "[comm]") {
  run_shaped(testing::channel_cases(), {2, 3, 4}, {5us, 0.05});
  run_shaped(testing::channel_cases(), {3}, {0us, 0});
}
TEST_CASE("calls over emulated links keep the contract", "[comm]") {
  run_shaped(testing::use_cases(), {1, 2, 3}, {1us, 0.01});
}
TEST_CASE("failures over emulated links end every wait", "[comm]") {
  run_shaped(testing::failure_cases(), {2, 3, 4}, {5us, 0.05});
}

TEST_CASE("a message over emulated links takes its time and tells when it travelled", "[comm]") {
  EmulatedLinks links(2, 4, {3ms, 1000});  // 8 bytes: 8 us
  InprocHub hub(2);
  const auto a = hub.make_transport(PeerId{0});
  const auto b = hub.make_transport(PeerId{1});
  ShapedTransport from(*a, links), to(*b, links);
  testing::Message out({8}), in({8});
  testing::Poster sender(from), receiver(to);
  sender.send(PeerId{1}, Lane::urgent, out);
  receiver.receive(PeerId{0}, Lane::urgent, in);
  sender.finish_all();
  receiver.finish_all();
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  const WireTimes times = to.last_times();
  CHECK(times.left - times.started == 8us);
  CHECK(times.arrived - times.left == 3ms);
  CHECK(times.arrived <= now);
  CHECK(times.arrived == from.last_times().arrived);
}

TEST_CASE("a rank that computes is given only what had arrived before", "[comm]") {
  EmulatedLinks links(2, 4, {0us, 0});
  InprocHub hub(2);
  const auto a = hub.make_transport(PeerId{0});
  const auto b = hub.make_transport(PeerId{1});
  ShapedTransport from(*a, links), to(*b, links);
  testing::Message out({8}), in({8});
  testing::Poster sender(from), receiver(to);
  to.computing(true);
  sender.send(PeerId{1}, Lane::urgent, out);
  receiver.receive(PeerId{0}, Lane::urgent, in);
  sender.finish_all();
  to.wait(1ms);
  CHECK(receiver.poll() == 0);
  to.computing(true);  // the next computation begins at once: what came meanwhile is handed out now
  CHECK(receiver.poll() == 1);
}

TEST_CASE("single-stream links carry messages in the announced order and no others", "[comm]") {
  EmulatedLinks links(2, 8, {.latency = 0us, .ns_per_byte = 100, .single_stream = true});
  InprocHub hub(2);
  const auto a = hub.make_transport(PeerId{0});
  const auto b = hub.make_transport(PeerId{1});
  ShapedTransport left(*a, links), right(*b, links);
  testing::Message first({8}), second({8}), first_in({8}), second_in({8});
  testing::Poster mine(left), theirs(right);
  CHECK_THROWS_AS(mine.send(PeerId{1}, Lane::urgent, first), std::logic_error);
  for (int step = 0; step < 2; ++step) {
    left.announce(std::vector<StreamPlace>{{PeerId{1}, Lane::bulk, false}, {PeerId{1}, Lane::urgent, true}});
    right.announce(std::vector<StreamPlace>{{PeerId{0}, Lane::bulk, true}, {PeerId{0}, Lane::urgent, false}});
    mine.send(PeerId{1}, Lane::urgent, first);
    theirs.receive(PeerId{0}, Lane::urgent, first_in);
    left.wait(2ms);
    CHECK(mine.poll() == 0);  // not its turn, though both ends are there
    mine.receive(PeerId{1}, Lane::bulk, second_in);
    theirs.send(PeerId{0}, Lane::bulk, second);
    mine.finish_all();
    theirs.finish_all();
    CHECK_THROWS_AS(mine.send(PeerId{1}, Lane::urgent, first), std::logic_error);
  }
}

TEST_CASE("emulated links are for as many ranks as the transport", "[comm]") {
  EmulatedLinks links(3, 4, {});
  InprocHub hub(2);
  const auto a = hub.make_transport(PeerId{0});
  CHECK_THROWS_AS(ShapedTransport(*a, links), std::invalid_argument);
  CHECK_THROWS_AS(EmulatedLinks(0, 4, {}), std::invalid_argument);
  CHECK_THROWS_AS(EmulatedLinks(2, 4, {-1us, 0}), std::invalid_argument);
  CHECK_THROWS_AS(EmulatedLinks(2, 4, {1us, -1}), std::invalid_argument);
}

}  // namespace
}  // namespace plumb

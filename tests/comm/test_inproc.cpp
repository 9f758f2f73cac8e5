// SPDX-License-Identifier: Apache-2.0
#include <initializer_list>
#include <stdexcept>
#include <thread>

#include "conformance.hpp"
#include "inproc_ranks.hpp"
#include "plumb/comm/inproc.hpp"
#include "support/catch.hpp"
#include "traffic.hpp"

namespace plumb {
namespace {

using testing::ConformanceCase;

void run_all(std::span<const ConformanceCase> cases, std::initializer_list<std::int32_t> rank_counts) {
  for (const std::int32_t num_ranks : rank_counts) {
    for (const ConformanceCase& c : cases) {
      if (num_ranks < c.min_ranks) continue;
      INFO(c.sentence << ", " << num_ranks << " ranks");
      CHECK_NOTHROW(testing::run_as_threads(num_ranks, c.body));
    }
  }
}

TEST_CASE("channels between threads keep the contract", "[comm]") { run_all(testing::channel_cases(), {2, 3, 4}); }
TEST_CASE("channels between 8 threads keep the contract", "[comm]") { run_all(testing::channel_cases(), {8}); }
TEST_CASE("calls between threads keep the contract", "[comm]") { run_all(testing::use_cases(), {1, 2, 3, 4, 8}); }
TEST_CASE("failures between threads end every wait", "[comm]") { run_all(testing::failure_cases(), {2, 3, 4, 8}); }
TEST_CASE("threads exchange texts", "[comm]") { run_all(testing::control_cases(), {1, 2, 3, 4, 8}); }

TEST_CASE("a send between threads is unfinished until its receive is posted", "[comm]") {
  InprocHub hub(2);
  const auto a = hub.make_transport(PeerId{0});
  const auto b = hub.make_transport(PeerId{1});
  testing::Message out({8}), in({8});
  testing::Poster at_a(*a), at_b(*b);
  at_a.send(PeerId{1}, Lane::urgent, out);
  CHECK(at_a.poll() == 0);
  CHECK(at_b.poll() == 0);
  at_b.receive(PeerId{0}, Lane::urgent, in);
  CHECK(at_a.poll() == 1);
  CHECK(at_b.poll() == 1);
}

TEST_CASE("a rank that leaves with a message pending fails the others", "[comm]") {
  InprocHub hub(2);
  auto a = hub.make_transport(PeerId{0});
  const auto b = hub.make_transport(PeerId{1});
  testing::Message message({8});
  a->post_send(PeerId{1}, Lane::urgent, message.const_segments());
  a.reset();
  CHECK_THROWS_WITH(b->wait(testing::patience), Catch::Contains("it left with 1 messages pending"));
}

TEST_CASE("a rank that leaves while another waits for it fails the others", "[comm]") {
  InprocHub hub(2);
  auto a = hub.make_transport(PeerId{0});
  const auto b = hub.make_transport(PeerId{1});
  testing::Message message({8});
  b->post_receive(PeerId{0}, Lane::bulk, message.segments());
  a.reset();
  CHECK_THROWS_WITH(b->wait(testing::patience), Catch::Contains("it left while a message with it was pending"));
}

TEST_CASE("a message to a rank that has left is refused", "[comm]") {
  InprocHub hub(3);
  auto a = hub.make_transport(PeerId{0});
  const auto b = hub.make_transport(PeerId{1});
  const auto c = hub.make_transport(PeerId{2});
  a.reset();
  testing::Message message({8});
  testing::Poster at_b(*b), at_c(*c);
  CHECK_THROWS_AS(at_b.send(PeerId{0}, Lane::urgent, message), TransportError);
  testing::Message other({8});
  at_b.send(PeerId{2}, Lane::urgent, message);  // the rest goes on
  at_c.receive(PeerId{1}, Lane::urgent, other);
  at_b.finish_all();
  at_c.finish_all();
}

TEST_CASE("a rank that leaves ends an exchange between threads", "[comm]") {
  InprocHub hub(3);
  auto a = hub.make_transport(PeerId{0});
  const auto b = hub.make_control(PeerId{1});
  std::thread leaving([&] { a.reset(); });
  CHECK_THROWS_WITH(b->exchange("digest", testing::patience), Catch::Contains("rank 0 has left"));
  leaving.join();
}

TEST_CASE("ranks and their parts are handed out once and in range", "[comm]") {
  CHECK_THROWS_AS(InprocHub(0), std::invalid_argument);
  CHECK_THROWS_AS(InprocHub(-1), std::invalid_argument);
  CHECK_THROWS_AS(InprocHub(100000), std::invalid_argument);
  InprocHub hub(2);
  const auto a = hub.make_transport(PeerId{0});
  CHECK_THROWS_AS(hub.make_transport(PeerId{0}), std::invalid_argument);
  CHECK_THROWS_AS(hub.make_transport(PeerId{2}), std::invalid_argument);
  CHECK_THROWS_AS(hub.make_control(PeerId{-1}), std::invalid_argument);
}

}  // namespace
}  // namespace plumb

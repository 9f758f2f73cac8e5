// SPDX-License-Identifier: Apache-2.0
#include "inproc_ranks.hpp"
#include "support/catch.hpp"
#include "support/jitter_transport.hpp"
#include "traffic.hpp"

namespace plumb {
namespace {

using testing::JitterOptions;
using testing::JitterTransport;
using testing::Message;
using testing::Poster;

TEST_CASE("a transport that is late at random keeps the contract", "[comm]") {
  for (const std::int32_t num_ranks : {2, 4}) {
    for (const testing::ConformanceCase& c : testing::channel_cases()) {
      INFO(c.sentence << ", " << num_ranks << " ranks");
      CHECK_NOTHROW(testing::run_as_threads(num_ranks, [&](testing::RankEnds ends) {
        JitterTransport late(ends.transport, {.seed = 5, .longest_delay = std::chrono::microseconds(20)});
        c.body({late, ends.control});
      }));
    }
  }
}

TEST_CASE("a lost message lets the next one take its place", "[comm]") {
  testing::run_as_threads(2, [](testing::RankEnds ends) {
    JitterTransport faulty(ends.transport, {.drop_send = 1});
    Message a({8}), b({8}), c({8});
    Poster poster(faulty);
    const PeerId from{0}, to{1};
    if (faulty.rank() == from) {
      std::uint64_t index = 0;
      for (Message* message : {&a, &b, &c}) {
        message->fill(from, to, Lane::bulk, index++);
        poster.send(to, Lane::bulk, *message);
      }
    } else {
      poster.receive(from, Lane::bulk, a);
      poster.receive(from, Lane::bulk, b);
    }
    poster.finish_all();
    if (faulty.rank() == from) return;
    a.expect(from, to, Lane::bulk, 0);
    b.expect(from, to, Lane::bulk, 2);
  });
}

TEST_CASE("a cut message is a protocol fault of the receiver", "[comm]") {
  testing::run_as_threads(2, [](testing::RankEnds ends) {
    JitterTransport faulty(ends.transport, {.shorten_send = 0});
    Message message({8, 100});
    const bool receives = faulty.rank().value == 1;
    auto kind = TransportErrorKind::net;
    try {
      Poster poster(faulty);
      if (receives) {
        poster.receive(PeerId{0}, Lane::urgent, message);
      } else {
        poster.send(PeerId{1}, Lane::urgent, message);
      }
      poster.finish_all();
    } catch (const TransportError& error) {
      kind = error.fault().kind;
    }
    testing::check(kind == (receives ? TransportErrorKind::protocol : TransportErrorKind::peer), "wrong kind");
  });
}

}  // namespace
}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <queue>
#include <random>
#include <vector>

#include "plumb/cache/arbiter.hpp"
#include "support/catch.hpp"
#include "wire_model.hpp"

namespace plumb::comm {
namespace {

using Time = WireModel::Time;
using std::chrono::nanoseconds;

/// A model in a block of its own, with the time in the test's hands.
class Wire {
 public:
  Wire(std::int32_t num_ranks, const LinkShape& shape, std::size_t most_messages = 64)
      : block_(WireModel::bytes_needed(num_ranks, most_messages) + 64),
        model(aligned(), true, num_ranks, most_messages, shape) {}

  void both(Time now, int from, int to, Lane lane, std::uint32_t ticket, std::size_t bytes = 1000) {
    post(now, from, to, lane, true, ticket, bytes);
    post(now, from, to, lane, false, ticket, bytes);
  }
  void post(Time now, int from, int to, Lane lane, bool is_send, std::uint32_t ticket, std::size_t bytes = 1000,
            std::uint64_t turn = 0) {
    REQUIRE(model.post(now, PeerId{from}, PeerId{to}, lane, is_send, ticket, bytes, turn));
  }
  /// What is over for the rank by then, by ticket.
  std::map<std::uint32_t, WireTimes> taken(int rank, Time until) {
    std::map<std::uint32_t, WireTimes> all;
    model.advance(until);
    while (const auto completion = model.take(PeerId{rank}, until))
      all[completion->ticket] = completion->times;
    return all;
  }

 private:
  std::byte* aligned() {
    const auto address = reinterpret_cast<std::uintptr_t>(block_.data());
    return block_.data() + (64 - address % 64) % 64;
  }
  std::vector<std::byte> block_;

 public:
  WireModel model;
};

constexpr LinkShape one_ns_per_byte{nanoseconds(70), 1.0};

TEST_CASE("a message holds the wire for its bytes and arrives a latency later", "[comm]") {
  Wire wire(2, one_ns_per_byte);
  wire.post(100, 0, 1, Lane::urgent, true, 7);
  CHECK(wire.model.next_completion(PeerId{0}) == WireModel::never);
  wire.post(250, 0, 1, Lane::urgent, false, 9);
  CHECK(wire.model.next_completion(PeerId{0}) == 1250);
  CHECK(wire.model.next_completion(PeerId{1}) == 1320);
  CHECK(wire.taken(0, 1249).empty());
  CHECK(wire.taken(1, 1319).empty());
  const WireTimes sent = wire.taken(0, 1250).at(7);
  CHECK(sent.started == nanoseconds(250));
  CHECK(sent.left == nanoseconds(1250));
  const WireTimes received = wire.taken(1, 1320).at(9);
  CHECK(received.arrived == nanoseconds(1320));
}

TEST_CASE("urgent overtakes what waits but not what is on the wire", "[comm]") {
  Wire wire(3, one_ns_per_byte);
  wire.both(0, 0, 1, Lane::bulk, 1);
  wire.both(10, 0, 2, Lane::bulk, 2);
  wire.both(20, 0, 1, Lane::urgent, 3);
  const auto sent = wire.taken(0, 3000);
  CHECK(sent.at(1).started.count() == 0);
  CHECK(sent.at(3).started.count() == 1000);
  CHECK(sent.at(2).started.count() == 2000);
}

TEST_CASE("a message that waits for its receiver does not hold back another", "[comm]") {
  Wire wire(4, one_ns_per_byte);
  wire.both(0, 1, 2, Lane::urgent, 1);   // keeps 2's ingress until 1000
  wire.both(10, 0, 2, Lane::urgent, 2);  // must wait for it
  wire.both(20, 0, 3, Lane::bulk, 3);    // need not
  CHECK(wire.taken(0, 5000).at(3).started.count() == 20);
  CHECK(wire.taken(2, 5000).at(2).started.count() == 1020);  // then 0's egress is the one that is busy
}

TEST_CASE("both directions of a rank are used at once", "[comm]") {
  Wire wire(2, one_ns_per_byte);
  wire.both(0, 0, 1, Lane::urgent, 1);
  wire.both(0, 1, 0, Lane::urgent, 2);
  CHECK(wire.taken(0, 1070).size() == 2);
}

TEST_CASE("who looks late does not make the wire late", "[comm]") {
  Wire wire(3, one_ns_per_byte);
  wire.both(0, 0, 1, Lane::urgent, 1);
  wire.both(1, 0, 2, Lane::urgent, 2);
  wire.both(2, 0, 1, Lane::bulk, 3);
  const auto sent = wire.taken(0, 1'000'000);
  CHECK(sent.at(2).started.count() == 1000);
  CHECK(sent.at(3).left.count() == 3000);
}

TEST_CASE("where bytes cost nothing all messages travel at once", "[comm]") {
  Wire wire(2, {nanoseconds(70), 0});
  for (std::uint32_t ticket = 0; ticket < 5; ++ticket)
    wire.both(ticket, 0, 1, Lane::bulk, ticket);
  const auto received = wire.taken(1, 74);
  REQUIRE(received.size() == 5);
  CHECK(received.at(4).arrived.count() == 74);
}

TEST_CASE("links without priority carry first what was posted first", "[comm]") {
  Wire wire(2, {.latency = nanoseconds(0), .ns_per_byte = 1, .urgent_first = false});
  wire.both(0, 0, 1, Lane::bulk, 1);
  wire.both(10, 0, 1, Lane::bulk, 2);
  wire.both(20, 0, 1, Lane::urgent, 3);
  const auto sent = wire.taken(0, 3000);
  CHECK(sent.at(2).started.count() == 1000);
  CHECK(sent.at(3).started.count() == 2000);
}

TEST_CASE("on single-stream links a message waits for its turn at both ends", "[comm]") {
  Wire wire(3, {.latency = nanoseconds(70), .ns_per_byte = 1, .single_stream = true});
  wire.post(0, 0, 1, Lane::urgent, true, 1, 1000, 1);  // rank 0 sends this after it has received from 2
  wire.post(0, 0, 1, Lane::urgent, false, 1, 1000, 0);
  CHECK(wire.taken(0, 500).empty());
  wire.post(500, 2, 0, Lane::bulk, true, 2, 1000, 0);
  wire.post(600, 2, 0, Lane::bulk, false, 2, 1000, 0);
  CHECK(wire.taken(2, 5000).at(2).started.count() == 600);
  CHECK(wire.taken(0, 5000).at(1).started.count() == 1600);
}

TEST_CASE("a sleeper is named when something of its own ends before it means to wake", "[comm]") {
  Wire wire(2, one_ns_per_byte);
  wire.model.set_wake_time(PeerId{1}, 5000);
  wire.model.set_wake_time(PeerId{0}, 900);
  wire.both(0, 0, 1, Lane::urgent, 1);
  const auto woken = wire.model.to_wake();
  REQUIRE(woken.size() == 1);
  CHECK(woken.front() == PeerId{1});
}

TEST_CASE("emulated links say when they have no room", "[comm]") {
  Wire wire(2, one_ns_per_byte, 2);
  wire.both(0, 0, 1, Lane::urgent, 1);
  wire.post(0, 0, 1, Lane::urgent, true, 2);
  CHECK_FALSE(wire.model.post(0, PeerId{0}, PeerId{1}, Lane::bulk, true, 3, 10));
  CHECK(wire.taken(0, 5000).size() == 1);
  CHECK(wire.taken(1, 5000).size() == 1);
  CHECK(wire.model.post(5000, PeerId{0}, PeerId{1}, Lane::bulk, true, 3, 10));
}

// --- against the arbiter of planner and simulator -----------------------------------------------------------------

struct Job {
  int from = 0;
  int to = 0;
  Lane lane = Lane::urgent;
  Time send = 0;
  Time receive = 0;
  std::size_t bytes = 0;
};

// Ascending in send and receive times, so that the n-th send of a channel meets the n-th receive. Every post has its
// own remainder and every duration none: no post coincides with the end of a message, where the order of calls would
// matter.
std::vector<Job> random_jobs(std::mt19937& random, int num_ranks, int count) {
  std::vector<Job> jobs;
  Time send = 0;
  Time receive = 0;
  for (int i = 0; i < count; ++i) {
    Job job;
    job.from = static_cast<int>(random() % static_cast<unsigned>(num_ranks));
    job.to = (job.from + 1 + static_cast<int>(random() % static_cast<unsigned>(num_ranks - 1))) % num_ranks;
    job.lane = random() % 2 == 0 ? Lane::urgent : Lane::bulk;
    send += 1 + random() % 40;
    receive += 1 + random() % 40;
    job.send = 4096 * send + 2 * i;
    job.receive = 4096 * receive + 2 * i + 1;
    job.bytes = 4096 * (1 + random() % 60);
    jobs.push_back(job);
  }
  return jobs;
}

std::vector<Time> started_by_arbiter(const std::vector<Job>& jobs, int num_ranks) {
  struct Event {
    Time at;
    bool ends;
    std::size_t job;
    bool operator<(const Event& other) const { return at > other.at; }
  };
  std::priority_queue<Event> events;
  for (std::size_t i = 0; i < jobs.size(); ++i)
    events.push({std::max(jobs[i].send, jobs[i].receive), false, i});
  NicArbiter arbiter(num_ranks);
  std::vector<Time> started(jobs.size());
  while (!events.empty()) {
    const Time now = events.top().at;
    while (!events.empty() && events.top().at == now) {
      const Event event = events.top();
      events.pop();
      const Job& job = jobs[event.job];
      if (event.ends) {
        arbiter.release(RankId(job.from), RankId(job.to));
      } else {
        arbiter.submit({RankId(job.from), RankId(job.to),
                        job.lane == Lane::urgent ? MessageLane::urgent : MessageLane::bulk, job.send,
                        static_cast<std::int64_t>(event.job)});
      }
    }
    std::vector<NicArbiter::Started> starting;
    arbiter.start_ready(starting);
    for (const auto& request : starting) {
      const auto index = static_cast<std::size_t>(request.order);
      started[index] = now;
      events.push({now + static_cast<Time>(jobs[index].bytes), true, index});
    }
  }
  return started;
}

std::vector<Time> started_by_wire(const std::vector<Job>& jobs, int num_ranks) {
  Wire wire(num_ranks, {nanoseconds(5), 1.0}, jobs.size());
  struct Post {
    Time at;
    bool is_send;
    std::size_t job;
  };
  std::vector<Post> posts;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    posts.push_back({jobs[i].send, true, i});
    posts.push_back({jobs[i].receive, false, i});
  }
  std::stable_sort(posts.begin(), posts.end(), [](const Post& a, const Post& b) { return a.at < b.at; });
  for (const Post& post : posts) {
    const Job& job = jobs[post.job];
    wire.post(post.at, job.from, job.to, job.lane, post.is_send, static_cast<std::uint32_t>(post.job), job.bytes);
  }
  std::vector<Time> started(jobs.size());
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (const auto& [ticket, times] : wire.taken(rank, 1'000'000'000))
      started[ticket] = times.started.count();
  }
  return started;
}

TEST_CASE("emulated wires start messages when the simulator's arbiter does", "[comm]") {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const int num_ranks = 2 + static_cast<int>(random() % 5);
    const std::vector<Job> jobs = random_jobs(random, num_ranks, 1 + static_cast<int>(random() % 120));
    INFO("round " << round << ", " << num_ranks << " ranks, " << jobs.size() << " messages");
    REQUIRE(started_by_wire(jobs, num_ranks) == started_by_arbiter(jobs, num_ranks));
  }
}

// --- single-stream: every order is fixed, so a start is known from what comes before --------------------------------

TEST_CASE("single-stream links run random messages one after the other, in the order of their ranks", "[comm]") {
  std::mt19937 random(12);
  for (int round = 0; round < 200; ++round) {
    const int num_ranks = 2 + static_cast<int>(random() % 5);
    const bool instant = round % 5 == 0;  // bytes that cost nothing hold nothing
    const std::vector<Job> jobs = random_jobs(random, num_ranks, 1 + static_cast<int>(random() % 120));
    std::vector<Time> free(static_cast<std::size_t>(num_ranks));
    std::vector<std::uint64_t> turns(static_cast<std::size_t>(num_ranks));
    struct Post {
      Time at;
      bool is_send;
      std::size_t job;
      std::uint64_t turn;
    };
    std::vector<Post> posts;
    std::vector<Time> expected;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const auto from = static_cast<std::size_t>(jobs[i].from), to = static_cast<std::size_t>(jobs[i].to);
      const Time start = std::max({jobs[i].send, jobs[i].receive, free[from], free[to]});
      expected.push_back(start);
      free[from] = free[to] = start + (instant ? 0 : static_cast<Time>(jobs[i].bytes));
      posts.push_back({jobs[i].send, true, i, turns[from]++});
      posts.push_back({jobs[i].receive, false, i, turns[to]++});
    }
    std::stable_sort(posts.begin(), posts.end(), [](const Post& a, const Post& b) { return a.at < b.at; });
    Wire wire(num_ranks, {.latency = nanoseconds(5), .ns_per_byte = instant ? 0.0 : 1.0, .single_stream = true},
              jobs.size());
    for (const Post& post : posts) {
      const Job& job = jobs[post.job];
      wire.post(post.at, job.from, job.to, job.lane, post.is_send, static_cast<std::uint32_t>(post.job), job.bytes,
                post.turn);
    }
    std::vector<Time> started(jobs.size());
    for (int rank = 0; rank < num_ranks; ++rank) {
      for (const auto& [ticket, times] : wire.taken(rank, 1'000'000'000))
        started[ticket] = times.started.count();
    }
    INFO("round " << round << ", " << num_ranks << " ranks, " << jobs.size() << " messages");
    REQUIRE(started == expected);
  }
}

}  // namespace
}  // namespace plumb::comm

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <deque>
#include <functional>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

#include "allocation_counter.hpp"
#include "conformance.hpp"
#include "traffic.hpp"

namespace plumb::testing {
namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;
constexpr Lane lanes[] = {Lane::urgent, Lane::bulk};

void messages_keep_their_order(RankEnds ends) {
  Transport& t = ends.transport;
  Poster poster(t);
  constexpr std::uint64_t num_messages = 60;
  std::deque<Message> out, in;
  for (const Lane lane : lanes) {
    for (std::uint64_t i = 0; i < num_messages; ++i) {
      // Around the sizes where substrates change their protocol.
      const std::vector<std::size_t> sizes_bytes = {1 + (i * 977) % 9000};
      out.emplace_back(sizes_bytes).fill(t.rank(), next_of(t), lane, i);
      in.emplace_back(sizes_bytes);
      poster.receive(previous_of(t), lane, in.back());
      poster.send(next_of(t), lane, out.back());
    }
  }
  poster.finish_all();
  std::size_t at = 0;
  for (const Lane lane : lanes) {
    for (std::uint64_t i = 0; i < num_messages; ++i)
      in[at++].expect(previous_of(t), t.rank(), lane, i);
  }
}

void late_receives_get_early_sends_in_order(RankEnds ends) {
  Transport& t = ends.transport;
  Poster poster(t);
  std::deque<Message> out, in;
  for (std::uint64_t i = 0; i < 40; ++i) {
    out.emplace_back(std::vector<std::size_t>{64}).fill(t.rank(), next_of(t), Lane::bulk, i);
    poster.send(next_of(t), Lane::bulk, out.back());
  }
  ends.control.barrier(patience);
  for (std::uint64_t i = 0; i < 40; ++i) {
    poster.receive(previous_of(t), Lane::bulk, in.emplace_back(std::vector<std::size_t>{64}));
  }
  poster.finish_all();
  for (std::uint64_t i = 0; i < 40; ++i)
    in[i].expect(previous_of(t), t.rank(), Lane::bulk, i);
}

void lanes_do_not_wait_for_each_other(RankEnds ends) {
  Transport& t = ends.transport;
  for (const Lane first : lanes) {
    const Lane second = first == Lane::urgent ? Lane::bulk : Lane::urgent;
    Poster poster(t);
    Message out_first({mebibyte}), out_second({mebibyte}), in_first({mebibyte}), in_second({mebibyte});
    out_first.fill(t.rank(), next_of(t), first, 1);
    out_second.fill(t.rank(), next_of(t), second, 2);
    poster.send(next_of(t), first, out_first);
    poster.send(next_of(t), second, out_second);
    const Ticket overtaking = poster.receive(previous_of(t), second, in_second);
    poster.finish(overtaking);
    in_second.expect(previous_of(t), t.rank(), second, 2);
    poster.receive(previous_of(t), first, in_first);
    poster.finish_all();
    in_first.expect(previous_of(t), t.rank(), first, 1);
  }
}

void peers_do_not_wait_for_each_other(RankEnds ends) {
  Transport& t = ends.transport;
  Poster poster(t);
  const PeerId silent{0};
  Message from_silent({mebibyte}), to_silent({mebibyte}), in({mebibyte}), out({mebibyte});
  const bool among_others = t.rank().value > 0;
  // Ranks 1.. form a ring of their own while rank 0 still owes each of them a message and takes none.
  if (among_others) {
    to_silent.fill(t.rank(), silent, Lane::bulk, 0);
    poster.receive(silent, Lane::bulk, from_silent);
    poster.send(silent, Lane::bulk, to_silent);
    const std::int32_t others = t.size() - 1;
    const PeerId next{1 + t.rank().value % others};
    const PeerId previous{1 + (t.rank().value - 2 + others) % others};
    if (next != t.rank()) {
      out.fill(t.rank(), next, Lane::bulk, 1);
      poster.send(next, Lane::bulk, out);
      poster.finish(poster.receive(previous, Lane::bulk, in));
      in.expect(previous, t.rank(), Lane::bulk, 1);
    }
  }
  ends.control.barrier(patience);
  if (among_others) {
    poster.finish_all();
    from_silent.expect(silent, t.rank(), Lane::bulk, 2);
    return;
  }
  std::deque<Message> owed, taken;
  for (std::int32_t peer = 1; peer < t.size(); ++peer) {
    owed.emplace_back(std::vector<std::size_t>{mebibyte}).fill(silent, PeerId{peer}, Lane::bulk, 2);
    poster.send(PeerId{peer}, Lane::bulk, owed.back());
    poster.receive(PeerId{peer}, Lane::bulk, taken.emplace_back(std::vector<std::size_t>{mebibyte}));
  }
  poster.finish_all();
  for (std::int32_t peer = 1; peer < t.size(); ++peer) {
    taken[static_cast<std::size_t>(peer - 1)].expect(PeerId{peer}, silent, Lane::bulk, 0);
  }
}

void segments_match_one_by_one(RankEnds ends) {
  Transport& t = ends.transport;
  Poster poster(t);
  const std::vector<std::size_t> sizes_bytes = {1, 4096, 3, 65536, 7, 7, 100000};
  std::deque<Message> out, in;
  for (std::uint64_t i = 0; i < 5; ++i) {
    out.emplace_back(sizes_bytes).fill(t.rank(), next_of(t), Lane::urgent, i);
    poster.receive(previous_of(t), Lane::urgent, in.emplace_back(sizes_bytes));
    poster.send(next_of(t), Lane::urgent, out.back());
  }
  poster.finish_all();
  for (std::uint64_t i = 0; i < 5; ++i)
    in[i].expect(previous_of(t), t.rank(), Lane::urgent, i);
}

void large_messages_cross(RankEnds ends) {
  Transport& t = ends.transport;
  Poster poster(t);
  Message out({8 * mebibyte}), in({8 * mebibyte});
  out.fill(t.rank(), next_of(t), Lane::bulk, 0);
  poster.send(next_of(t), Lane::bulk, out);
  poster.receive(previous_of(t), Lane::bulk, in);
  poster.finish_all();
  in.expect(previous_of(t), t.rank(), Lane::bulk, 0);
  check(t.counters().total.bytes_received == 8 * mebibyte, "8 MiB arrived but were not counted so");
}

void many_small_messages_stream(RankEnds ends) {
  Transport& t = ends.transport;
  Poster poster(t);
  constexpr std::uint64_t num_messages = 3000;
  constexpr std::uint64_t window = 32;
  Message out({8});
  out.fill(t.rank(), next_of(t), Lane::urgent, 0);
  std::deque<Message> in;
  for (std::uint64_t i = 0; i < num_messages; ++i) {
    poster.receive(previous_of(t), Lane::urgent, in.emplace_back(std::vector<std::size_t>{8}));
    poster.send(next_of(t), Lane::urgent, out);
    poster.finish_down_to(2 * window);
  }
  poster.finish_all();
  for (const Message& message : in)
    message.expect(previous_of(t), t.rank(), Lane::urgent, 0);
  check(t.counters().total.messages_received == num_messages, "a message was not counted");
}

struct Planned {
  PeerId from, to;
  Lane lane;
  std::vector<std::size_t> sizes_bytes;
};

std::vector<Planned> random_plan(std::int32_t num_ranks, std::uint64_t seed, std::size_t num_messages) {
  Random random(seed);
  std::vector<Planned> plan;
  while (plan.size() < num_messages) {
    const auto ranks = static_cast<std::uint64_t>(num_ranks);
    Planned message{PeerId{static_cast<std::int32_t>(random.below(ranks))},
                    PeerId{static_cast<std::int32_t>(random.below(ranks))},
                    lanes[random.below(2)],
                    {}};
    if (message.from == message.to) continue;
    const std::uint64_t num_segments = 1 + random.below(6);
    for (std::uint64_t i = 0; i < num_segments; ++i) {
      const std::uint64_t scale = std::uint64_t{1} << random.below(16);
      message.sizes_bytes.push_back(1 + static_cast<std::size_t>(random.below(scale)));
    }
    plan.push_back(std::move(message));
  }
  return plan;
}

// All ranks walk one common list of messages with few of them open: it can only stall if order or progress is broken.
void random_traffic(RankEnds ends) {
  Transport& t = ends.transport;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const auto plan = random_plan(t.size(), seed, 200U * static_cast<std::size_t>(t.size()));
    Random timing(seed * 1000 + static_cast<std::uint64_t>(t.rank().value));
    const Counters before = t.counters();
    Counters expected = before;
    Poster poster(t);
    std::deque<Message> kept;
    std::vector<std::function<void()>> checks;
    for (std::uint64_t i = 0; i < plan.size(); ++i) {
      const Planned& m = plan[i];
      const bool sends = m.from == t.rank();
      if (!sends && m.to != t.rank()) continue;
      Message& message = kept.emplace_back(m.sizes_bytes);
      auto& counted =
          expected.by_peer[static_cast<std::size_t>((sends ? m.to : m.from).value)][static_cast<std::size_t>(m.lane)];
      if (sends) {
        message.fill(m.from, m.to, m.lane, i);
        poster.send(m.to, m.lane, message);
      } else {
        poster.receive(m.from, m.lane, message);
        checks.push_back([&message, &m, i] { message.expect(m.from, m.to, m.lane, i); });
      }
      for (ChannelCounters* c : {&counted, &expected.total}) {
        (sends ? c->bytes_sent : c->bytes_received) += message.size_bytes();
        ++(sends ? c->messages_sent : c->messages_received);
      }
      if (timing.below(8) == 0) poster.finish_down_to(static_cast<std::size_t>(timing.below(6)));
    }
    poster.finish_all();
    for (const auto& expect : checks)
      expect();
    const auto same = [](const ChannelCounters& a, const ChannelCounters& b) {
      return a.bytes_sent == b.bytes_sent && a.bytes_received == b.bytes_received &&
             a.messages_sent == b.messages_sent && a.messages_received == b.messages_received;
    };
    check(same(t.counters().total, expected.total), "the total counters differ from the traffic");
    for (std::int32_t peer = 0; peer < t.size(); ++peer) {
      for (const Lane lane : lanes) {
        check(same(t.counters().at(PeerId{peer}, lane), expected.at(PeerId{peer}, lane)),
              fmt::format("the counters of peer {} on the {} lane differ from the traffic", peer, to_text(lane)));
      }
    }
  }
}

void tickets_stay_small(RankEnds ends) {
  Transport& t = ends.transport;
  Poster poster(t);
  Message out({16}), in_a({16}), in_b({16});
  for (int i = 0; i < 200; ++i) {
    const Ticket tickets[] = {poster.receive(previous_of(t), Lane::urgent, in_a),
                              poster.receive(previous_of(t), Lane::urgent, in_b),
                              poster.send(next_of(t), Lane::urgent, out), poster.send(next_of(t), Lane::urgent, out)};
    for (const Ticket ticket : tickets)
      check(ticket.value < 4, "a ticket is not below the number in flight");
    poster.finish_all();
  }
}

void steady_traffic_allocates_nothing(RankEnds ends) {
  Transport& t = ends.transport;
  constexpr std::size_t window = 8;
  constexpr std::size_t num_segments = 3;
  t.reserve(2 * window, 2 * window * num_segments);
  const std::vector<std::size_t> sizes_bytes = {100, 5000, 20000};
  std::vector<Message> out(window, Message(sizes_bytes)), in(window, Message(sizes_bytes));
  std::vector<std::vector<ConstSegment>> sources;
  std::vector<std::vector<Segment>> targets;
  for (std::size_t i = 0; i < window; ++i) {
    sources.push_back(out[i].const_segments());
    targets.push_back(in[i].segments());
  }
  const auto step = [&] {
    for (std::size_t i = 0; i < window; ++i)
      t.post_receive(previous_of(t), Lane::bulk, targets[i]);
    for (std::size_t i = 0; i < window; ++i)
      t.post_send(next_of(t), Lane::bulk, sources[i]);
    Ticket completed[4];
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (std::size_t num_open = 2 * window; num_open > 0;) {
      const std::size_t num_completed = t.progress(completed);
      num_open -= num_completed;
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("steady traffic stalled");
      if (num_completed == 0) t.wait(std::chrono::milliseconds(10));
    }
  };
  step();
  const std::uint64_t before = num_allocations_of_this_thread();
  for (int i = 0; i < 50; ++i)
    step();
  const std::uint64_t num_allocations = num_allocations_of_this_thread() - before;
  check(num_allocations == 0, fmt::format("{} allocations in steady traffic", num_allocations));
}

void wrong_use_is_refused(RankEnds ends) {
  Transport& t = ends.transport;
  std::byte byte{};
  const Segment one{&byte, 1};
  const ConstSegment const_one{&byte, 1};
  const auto refused = [](auto post) {
    try {
      post();
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  const auto send = [&](PeerId to, std::span<const ConstSegment> list) {
    return refused([&] { t.post_send(to, Lane::urgent, list); });
  };
  const auto receive = [&](PeerId from, std::span<const Segment> list) {
    return refused([&] { t.post_receive(from, Lane::urgent, list); });
  };
  for (const PeerId peer : {t.rank(), PeerId{-1}, PeerId{t.size()}}) {
    check(send(peer, {&const_one, 1}), fmt::format("a send to {} was accepted", peer.value));
    check(receive(peer, {&one, 1}), fmt::format("a receive from {} was accepted", peer.value));
  }
  if (t.size() == 1) return;
  const ConstSegment bad_sources[] = {const_one, {&byte, 0}, {nullptr, 1}};
  const Segment bad_targets[] = {one, {&byte, 0}, {nullptr, 1}};
  check(send(next_of(t), {}) && receive(next_of(t), {}), "an empty list was accepted");
  check(send(next_of(t), std::span(bad_sources).first(2)), "an empty segment was accepted");
  check(receive(next_of(t), std::span(bad_targets).first(2)), "an empty segment was accepted");
  check(send(next_of(t), std::span(bad_sources).last(1)), "a null segment was accepted");
  check(receive(next_of(t), std::span(bad_targets).last(1)), "a null segment was accepted");
  messages_keep_their_order(ends);  // and nothing was half posted
}

void wait_keeps_its_limit(RankEnds ends) {
  Transport& t = ends.transport;
  // One wait may end early, but they may not all: the time has to pass in few of them.
  const auto start = std::chrono::steady_clock::now();
  int num_waits = 0;
  for (; std::chrono::steady_clock::now() - start < std::chrono::milliseconds(60); ++num_waits) {
    t.wait(std::chrono::milliseconds(20));
  }
  check(num_waits <= 10, fmt::format("{} waits of 20 ms for 60 ms", num_waits));
  t.wait(std::chrono::nanoseconds(0));
  t.wait(std::chrono::nanoseconds(-1));
  check(std::chrono::steady_clock::now() - start < patience, "a wait was far beyond its limit");
}

void idle_waits_leave_the_core(RankEnds ends) {
  const auto cpu = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const auto before = cpu();
  for (int i = 0; i < 20; ++i)
    ends.transport.wait(std::chrono::milliseconds(10));
  const auto used = cpu() - before;
  check(used < std::chrono::milliseconds(100),
        fmt::format("200 ms of idle waits took {} us of a core",
                    std::chrono::duration_cast<std::chrono::microseconds>(used).count()));
}

void notify_ends_a_wait(RankEnds ends) {
  Transport& t = ends.transport;
  const auto start = std::chrono::steady_clock::now();
  t.notify();
  t.wait(patience);  // an early call is remembered
  std::atomic<bool> rung{false};
  std::thread worker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    rung.store(true);
    t.notify();
  });
  while (!rung.load())
    t.wait(patience);
  worker.join();
  check(std::chrono::steady_clock::now() - start < patience, "notify() did not end the wait");
}

// Rank 1 forwards while its other thread is busy until the forwarded message has come all the way round.
void messages_pass_a_rank_that_computes(RankEnds ends) {
  Transport& t = ends.transport;
  Poster poster(t);
  Message message({3 * mebibyte});
  std::atomic<bool> hold{true};
  std::thread compute;
  if (t.rank().value == 1) {
    compute = std::thread([&] {
      while (hold.load())
        std::this_thread::yield();
    });
  }
  try {
    if (t.rank().value == 0) {
      message.fill(PeerId{0}, PeerId{1}, Lane::bulk, 7);
      poster.finish(poster.send(next_of(t), Lane::bulk, message));
    } else {
      poster.finish(poster.receive(previous_of(t), Lane::bulk, message));
      poster.finish(poster.send(next_of(t), Lane::bulk, message));
    }
    if (t.rank().value == 0) {
      Message back({3 * mebibyte});
      poster.finish(poster.receive(previous_of(t), Lane::bulk, back));
      back.expect(PeerId{0}, PeerId{1}, Lane::bulk, 7);
    }
    ends.control.barrier(patience);
  } catch (...) {
    hold.store(false);
    if (compute.joinable()) compute.join();
    throw;
  }
  hold.store(false);
  if (compute.joinable()) compute.join();
}

void ring_hops_are_shown(RankEnds ends) {
  Transport& t = ends.transport;
  Poster poster(t);
  Message token({8});
  constexpr int num_rounds = 200;
  ends.control.barrier(patience);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < num_rounds; ++i) {
    if (t.rank().value > 0) poster.finish(poster.receive(previous_of(t), Lane::urgent, token));
    poster.finish(poster.send(next_of(t), Lane::urgent, token));
    if (t.rank().value == 0) poster.finish(poster.receive(previous_of(t), Lane::urgent, token));
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  if (t.rank().value == 0) {
    std::printf("ring of %d ranks: %.1f us per hop\n", static_cast<int>(t.size()),
                took.count() / num_rounds / t.size());
    std::fflush(stdout);
  }
}

constexpr ConformanceCase cases[] = {
    {"messages of a channel arrive in the order of their posts", 2, messages_keep_their_order},
    {"late receives get early sends in order", 2, late_receives_get_early_sends_in_order},
    {"lanes do not wait for each other", 2, lanes_do_not_wait_for_each_other},
    {"peers do not wait for each other", 2, peers_do_not_wait_for_each_other},
    {"segments match one by one without packing", 2, segments_match_one_by_one},
    {"large messages cross each other", 2, large_messages_cross},
    {"many small messages stream", 2, many_small_messages_stream},
    {"random traffic arrives intact and is counted exactly", 2, random_traffic},
    {"tickets stay small", 2, tickets_stay_small},
    {"steady traffic allocates nothing", 2, steady_traffic_allocates_nothing},
    {"wrong use is refused and changes nothing", 1, wrong_use_is_refused},
    {"wait keeps its limit", 1, wait_keeps_its_limit},
    {"idle waits leave the core", 1, idle_waits_leave_the_core},
    {"notify ends a wait, also the next one", 1, notify_ends_a_wait},
    {"messages pass a rank that computes", 2, messages_pass_a_rank_that_computes},
    {"ring hops are shown", 2, ring_hops_are_shown},
};

}  // namespace

std::span<const ConformanceCase> channel_cases() { return cases; }

}  // namespace plumb::testing

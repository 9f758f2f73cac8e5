// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdio>
#include <ctime>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

#include "allocation_counter.hpp"
#include "conformance.hpp"
#include "traffic.hpp"

namespace plumb::testing {
namespace {

void tickets_stay_small(RankEnds ends) {
  Transport& t = ends.transport;
  Message out({16}), in_a({16}), in_b({16});
  Poster poster(t);
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
  Message out({64}), in({64});  // and nothing was half posted
  Poster poster(t);
  out.fill(t.rank(), next_of(t), Lane::urgent, 0);
  poster.receive(previous_of(t), Lane::urgent, in);
  poster.send(next_of(t), Lane::urgent, out);
  poster.finish_all();
  in.expect(previous_of(t), t.rank(), Lane::urgent, 0);
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
  Message message({3 * mebibyte}), back({3 * mebibyte});
  Poster poster(t);
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
  Message token({8});
  Poster poster(t);
  constexpr int num_rounds = 1000;
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

constexpr ConformanceCase use_case_list[] = {
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

std::span<const ConformanceCase> use_cases() { return use_case_list; }

}  // namespace plumb::testing

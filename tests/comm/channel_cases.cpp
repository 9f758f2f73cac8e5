// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <functional>

#include <fmt/format.h>

#include "conformance.hpp"
#include "traffic.hpp"

namespace plumb::testing {
namespace {

constexpr Lane lanes[] = {Lane::urgent, Lane::bulk};

void messages_keep_their_order(RankEnds ends) {
  Transport& t = ends.transport;
  constexpr std::uint64_t num_messages = 60;
  std::deque<Message> out, in;
  Poster poster(t);
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
  std::deque<Message> out, in;
  Poster poster(t);
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
    Message out_first({mebibyte}), out_second({mebibyte}), in_first({mebibyte}), in_second({mebibyte});
    Poster poster(t);
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
  const PeerId silent{0};
  std::deque<Message> owed, taken;
  Message from_silent({mebibyte}), to_silent({mebibyte}), in({mebibyte}), out({mebibyte});
  Poster poster(t);
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
  const std::vector<std::size_t> sizes_bytes = {1, 4096, 3, 65536, 7, 7, 100000};
  std::deque<Message> out, in;
  Poster poster(t);
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
  Message out({8 * mebibyte}), in({8 * mebibyte});
  Poster poster(t);
  out.fill(t.rank(), next_of(t), Lane::bulk, 0);
  poster.send(next_of(t), Lane::bulk, out);
  poster.receive(previous_of(t), Lane::bulk, in);
  poster.finish_all();
  in.expect(previous_of(t), t.rank(), Lane::bulk, 0);
  check(t.counters().total.bytes_received == 8 * mebibyte, "8 MiB arrived but were not counted so");
}

void many_small_messages_stream(RankEnds ends) {
  Transport& t = ends.transport;
  constexpr std::uint64_t num_messages = 3000;
  constexpr std::uint64_t window = 32;
  Message out({8});
  out.fill(t.rank(), next_of(t), Lane::urgent, 0);
  std::deque<Message> in;
  Poster poster(t);
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
    std::deque<Message> kept;
    Poster poster(t);
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

constexpr ConformanceCase channel_case_list[] = {
    {"messages of a channel arrive in the order of their posts", 2, messages_keep_their_order},
    {"late receives get early sends in order", 2, late_receives_get_early_sends_in_order},
    {"lanes do not wait for each other", 2, lanes_do_not_wait_for_each_other},
    {"peers do not wait for each other", 2, peers_do_not_wait_for_each_other},
    {"segments match one by one without packing", 2, segments_match_one_by_one},
    {"large messages cross each other", 2, large_messages_cross},
    {"many small messages stream", 2, many_small_messages_stream},
    {"random traffic arrives intact and is counted exactly", 2, random_traffic},
};

}  // namespace

std::span<const ConformanceCase> channel_cases() { return channel_case_list; }

}  // namespace plumb::testing

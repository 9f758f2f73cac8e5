// SPDX-License-Identifier: Apache-2.0
// jitter_transport.hpp: a Transport in front of another that is late at random and, on request, loses or cuts a
// message.
//
// Every post and every completion is delayed by a time drawn uniformly from 0 .. longest_delay, so that many runs meet
// many interleavings. The seed and the rank decide the draws, not the result. Test only; it may allocate.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "plumb/comm/transport.hpp"

namespace plumb::testing {

struct JitterOptions {
  std::uint64_t seed = 1;
  std::chrono::microseconds longest_delay{200};
  /// Counted over all sends of this rank, from 0.
  std::optional<std::uint64_t> drop_send = std::nullopt;     ///< never posted, though its ticket finishes
  std::optional<std::uint64_t> shorten_send = std::nullopt;  ///< arrives without its last byte
};

class JitterTransport final : public Transport {
 public:
  JitterTransport(Transport& inner, const JitterOptions& options)
      : inner_(inner),
        options_(options),
        random_(options.seed * 1009 + static_cast<std::uint64_t>(inner.rank().value)) {
    counters_.by_peer.resize(static_cast<std::size_t>(inner.size()));
  }

  PeerId rank() const noexcept override { return inner_.rank(); }
  std::int32_t size() const noexcept override { return inner_.size(); }
  const Counters& counters() const noexcept override { return counters_; }
  void notify() noexcept override { inner_.notify(); }
  void fail(std::string_view reason) noexcept override { inner_.fail(reason); }

  void reserve(std::size_t num_messages, std::size_t num_segments) override {
    inner_.reserve(num_messages, num_segments);
  }

  Ticket post_send(PeerId to, Lane lane, std::span<const ConstSegment> segments) override {
    linger();
    const std::uint64_t index = num_sends_++;
    if (index == options_.drop_send) return finished_at_once(to, lane);
    if (index != options_.shorten_send) return opened(inner_.post_send(to, lane, segments), to, lane, true);
    std::vector<ConstSegment> shorter(segments.begin(), segments.end());
    if (--shorter.back().size_bytes == 0) shorter.pop_back();
    if (shorter.empty()) throw std::invalid_argument("a message of one byte cannot be cut");
    return opened(inner_.post_send(to, lane, shorter), to, lane, true);
  }

  Ticket post_receive(PeerId from, Lane lane, std::span<const Segment> segments) override {
    linger();
    return opened(inner_.post_receive(from, lane, segments), from, lane, false);
  }

  std::size_t progress(std::span<Ticket> completed) override {
    // One at a time, so that the change of the inner counters belongs to one message.
    for (Ticket finished;;) {
      const ChannelCounters before = inner_.counters().total;
      if (inner_.progress({&finished, 1}) == 0) break;
      const ChannelCounters& after = inner_.counters().total;
      const Ticket ticket = outer_of_inner_[finished.value];
      posts_[ticket.value].moved_bytes = posts_[ticket.value].is_send ? after.bytes_sent - before.bytes_sent
                                                                      : after.bytes_received - before.bytes_received;
      hold(ticket);
    }
    std::size_t num_completed = 0;
    const auto now = Clock::now();
    for (auto held = held_.begin(); held != held_.end() && num_completed < completed.size();) {
      if (held->due > now) {
        ++held;
        continue;
      }
      count(posts_[held->ticket.value]);
      free_.push_back(held->ticket.value);
      completed[num_completed++] = held->ticket;
      held = held_.erase(held);
    }
    return num_completed;
  }

  void wait(std::chrono::nanoseconds limit) override {
    for (const Held& held : held_)
      limit = std::min<std::chrono::nanoseconds>(limit, held.due - Clock::now());
    inner_.wait(limit);
  }

 private:
  using Clock = std::chrono::steady_clock;

  struct Post {
    PeerId peer;
    Lane lane = Lane::urgent;
    bool is_send = false;
    std::uint64_t moved_bytes = 0;
  };

  struct Held {
    Ticket ticket;
    Clock::time_point due;
  };

  std::chrono::nanoseconds draw() {
    const std::chrono::nanoseconds longest = options_.longest_delay;
    return std::chrono::nanoseconds(std::uniform_int_distribution<std::int64_t>(0, longest.count())(random_));
  }

  void linger() {  // by yielding: a sleep this short would take several times as long
    const auto until = Clock::now() + draw();
    while (Clock::now() < until)
      std::this_thread::yield();
  }

  void hold(Ticket ticket) { held_.push_back({ticket, Clock::now() + draw()}); }

  Ticket take(PeerId peer, Lane lane, bool is_send) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(posts_.size()));
      posts_.emplace_back();
    }
    const Ticket ticket{free_.back()};
    free_.pop_back();
    posts_[ticket.value] = {peer, lane, is_send, 0};
    return ticket;
  }

  Ticket opened(Ticket inner, PeerId peer, Lane lane, bool is_send) {
    if (inner.value >= outer_of_inner_.size()) outer_of_inner_.resize(inner.value + 1);
    return outer_of_inner_[inner.value] = take(peer, lane, is_send);
  }

  Ticket finished_at_once(PeerId to, Lane lane) {
    const Ticket ticket = take(to, lane, true);
    hold(ticket);
    return ticket;
  }

  void count(const Post& post) {
    auto& lane = counters_.by_peer[static_cast<std::size_t>(post.peer.value)][static_cast<std::size_t>(post.lane)];
    for (ChannelCounters* counters : {&counters_.total, &lane}) {
      (post.is_send ? counters->bytes_sent : counters->bytes_received) += post.moved_bytes;
      ++(post.is_send ? counters->messages_sent : counters->messages_received);
    }
  }

  Transport& inner_;
  JitterOptions options_;
  std::mt19937_64 random_;
  std::uint64_t num_sends_ = 0;
  std::vector<Post> posts_;  ///< [ticket]
  std::vector<std::uint32_t> free_;
  std::vector<Ticket> outer_of_inner_;
  std::deque<Held> held_;  ///< finished inside, not yet outside
  Counters counters_;
};

}  // namespace plumb::testing

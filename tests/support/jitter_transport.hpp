// SPDX-License-Identifier: Apache-2.0
// jitter_transport.hpp: a Transport in front of another that is late at random and, on request, loses or cuts a
// message.
//
// Every post and every completion is delayed by a time drawn uniformly from 0 .. longest_delay, so that many runs meet
// many interleavings. The seed and the rank decide the draws, not the result. Test only; it may allocate.
#pragma once

#include <algorithm>
#include <array>
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
        random_(options.seed * 1009 + static_cast<std::uint64_t>(inner.rank().value)) {}

  PeerId rank() const noexcept override { return inner_.rank(); }
  std::int32_t size() const noexcept override { return inner_.size(); }
  const Counters& counters() const noexcept override { return inner_.counters(); }
  void notify() noexcept override { inner_.notify(); }
  void fail(std::string_view reason) noexcept override { inner_.fail(reason); }

  void reserve(std::size_t num_messages, std::size_t num_segments) override {
    inner_.reserve(num_messages, num_segments);
  }

  Ticket post_send(PeerId to, Lane lane, std::span<const ConstSegment> segments) override {
    linger();
    const std::uint64_t index = num_sends_++;
    if (index == options_.drop_send) return finished_at_once();
    if (index != options_.shorten_send) return opened(inner_.post_send(to, lane, segments));
    std::vector<ConstSegment> shorter(segments.begin(), segments.end());
    if (--shorter.back().size_bytes == 0) shorter.pop_back();
    if (shorter.empty()) throw std::invalid_argument("a message of one byte cannot be cut");
    return opened(inner_.post_send(to, lane, shorter));
  }

  Ticket post_receive(PeerId from, Lane lane, std::span<const Segment> segments) override {
    linger();
    return opened(inner_.post_receive(from, lane, segments));
  }

  std::size_t progress(std::span<Ticket> completed) override {
    std::array<Ticket, 16> finished;
    const std::size_t num_finished = inner_.progress(finished);
    for (std::size_t i = 0; i < num_finished; ++i)
      hold(outer_of_inner_[finished[i].value]);
    std::size_t num_completed = 0;
    const auto now = Clock::now();
    for (auto held = held_.begin(); held != held_.end() && num_completed < completed.size();) {
      if (held->due > now) {
        ++held;
        continue;
      }
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

  Ticket take() {
    if (free_.empty()) free_.push_back(num_tickets_++);
    const Ticket ticket{free_.back()};
    free_.pop_back();
    return ticket;
  }

  Ticket opened(Ticket inner) {
    if (inner.value >= outer_of_inner_.size()) outer_of_inner_.resize(inner.value + 1);
    return outer_of_inner_[inner.value] = take();
  }

  Ticket finished_at_once() {
    const Ticket ticket = take();
    hold(ticket);
    return ticket;
  }

  Transport& inner_;
  JitterOptions options_;
  std::mt19937_64 random_;
  std::uint64_t num_sends_ = 0;
  std::uint32_t num_tickets_ = 0;
  std::vector<std::uint32_t> free_;
  std::vector<Ticket> outer_of_inner_;
  std::deque<Held> held_;  ///< finished inside, not yet outside
};

}  // namespace plumb::testing

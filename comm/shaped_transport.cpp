// SPDX-License-Identifier: Apache-2.0
#include "plumb/comm/shaped_transport.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>
#include <sys/prctl.h>

#include "link_board.hpp"

namespace plumb {
namespace {

constexpr std::int64_t always = std::numeric_limits<std::int64_t>::max() - 1;

// What is due is polled for with the inner transport's own patience, in slices.
constexpr std::chrono::microseconds late_slice{200};

// A failure that the inner transport finds by itself rings no bell here.
constexpr std::chrono::milliseconds longest_sleep{50};

template <class AnySegment>
std::size_t size_of(std::span<const AnySegment> segments) {
  std::size_t bytes = 0;
  for (const AnySegment& segment : segments)
    bytes += segment.size_bytes;
  return bytes;
}

}  // namespace

void sharpen_sleeps() noexcept { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

ShapedTransport::ShapedTransport(Transport& inner, EmulatedLinks& links)
    : inner_(inner), board_(links.board()), hand_out_until_(always) {
  if (links.size() != inner.size()) {
    throw std::invalid_argument(
        fmt::format("emulated links for {} ranks in front of a transport of {}", links.size(), inner.size()));
  }
  counters_.by_peer.resize(static_cast<std::size_t>(inner.size()));
}

void ShapedTransport::reserve(std::size_t num_messages, std::size_t num_segments) {
  inner_.reserve(num_messages, num_segments);
  messages_.reserve(num_messages);
  free_.reserve(num_messages);
  ready_.reserve(num_messages);
  outer_of_inner_.reserve(num_messages);
}

std::uint32_t ShapedTransport::open(Ticket inner, PeerId peer, Lane lane, bool is_send) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(messages_.size()));
    messages_.emplace_back();
  }
  const std::uint32_t ticket = free_.back();
  free_.pop_back();
  Message& message = messages_[ticket];
  message = Message{};
  message.peer = peer;
  message.lane = lane;
  message.is_send = is_send;
  if (inner.value >= outer_of_inner_.size()) outer_of_inner_.resize(inner.value + 1);
  outer_of_inner_[inner.value] = ticket;
  return ticket;
}

ShapedTransport::Turns& ShapedTransport::turns_of(PeerId peer, Lane lane, bool is_send) {
  return turns_[(static_cast<std::size_t>(peer.value) * num_lanes + static_cast<std::size_t>(lane)) * 2 +
                (is_send ? 1 : 0)];
}

void ShapedTransport::announce(std::span<const StreamPlace> order) {
  if (!board_.is_single_stream()) return;
  turns_.resize(static_cast<std::size_t>(size()) * num_lanes * 2);
  for (Turns& turns : turns_) {
    turns.all.erase(turns.all.begin(), turns.all.begin() + static_cast<std::ptrdiff_t>(turns.num_posted));
    turns.num_posted = 0;
  }
  for (const StreamPlace& place : order)
    turns_of(place.peer, place.lane, place.is_send).all.push_back(num_announced_++);
}

std::uint64_t ShapedTransport::next_turn(PeerId peer, Lane lane, bool is_send) {
  if (!board_.is_single_stream()) return 0;
  Turns* const turns = turns_.empty() ? nullptr : &turns_of(peer, lane, is_send);
  if (turns == nullptr || turns->num_posted == turns->all.size()) {
    throw std::logic_error(fmt::format("single-stream links: rank {} posts {} rank {} that it has not announced",
                                       rank().value, is_send ? "a send to" : "a receive from", peer.value));
  }
  return turns->all[turns->num_posted++];
}

Ticket ShapedTransport::post_send(PeerId to, Lane lane, std::span<const ConstSegment> segments) {
  const std::uint64_t turn = next_turn(to, lane, true);
  const std::uint32_t ticket = open(inner_.post_send(to, lane, segments), to, lane, true);
  board_.post(rank(), to, lane, true, ticket, size_of(segments), turn);
  return Ticket{ticket};
}

Ticket ShapedTransport::post_receive(PeerId from, Lane lane, std::span<const Segment> segments) {
  const std::uint64_t turn = next_turn(from, lane, false);
  const std::uint32_t ticket = open(inner_.post_receive(from, lane, segments), from, lane, false);
  board_.post(from, rank(), lane, false, ticket, size_of(segments), turn);
  return Ticket{ticket};
}

// One at a time, so that the change of the inner counters belongs to one message.
void ShapedTransport::collect_inner() {
  for (;;) {
    Ticket inner;
    const ChannelCounters before = inner_.counters().total;
    if (inner_.progress({&inner, 1}) == 0) return;
    const ChannelCounters& after = inner_.counters().total;
    const std::uint32_t ticket = outer_of_inner_[inner.value];
    Message& message = messages_[ticket];
    message.moved = true;
    message.moved_bytes =
        message.is_send ? after.bytes_sent - before.bytes_sent : after.bytes_received - before.bytes_received;
    if (message.due) --num_late_;
    finish_if_over(ticket);
  }
}

void ShapedTransport::finish_if_over(std::uint32_t ticket) {
  if (messages_[ticket].moved && messages_[ticket].due) ready_.push_back(ticket);
}

void ShapedTransport::collect() {
  collect_inner();
  board_.collect(rank(), std::min(until(), comm::LinkBoard::now()),
                 [this](const comm::WireModel::Completion& completion) {
                   Message& message = messages_[completion.ticket];
                   message.due = true;
                   message.times = completion.times;
                   if (!message.moved) ++num_late_;
                   finish_if_over(completion.ticket);
                 });
}

std::size_t ShapedTransport::progress(std::span<Ticket> completed) {
  if (!has_ready()) {
    ready_.clear();
    next_ready_ = 0;
    collect();
  }
  std::size_t num_completed = 0;
  for (; num_completed < completed.size() && has_ready(); ++num_completed) {
    const std::uint32_t ticket = ready_[next_ready_++];
    const Message& message = messages_[ticket];
    last_times_ = message.times;
    auto& lane =
        counters_.by_peer[static_cast<std::size_t>(message.peer.value)][static_cast<std::size_t>(message.lane)];
    for (ChannelCounters* counters : {&counters_.total, &lane}) {
      (message.is_send ? counters->bytes_sent : counters->bytes_received) += message.moved_bytes;
      ++(message.is_send ? counters->messages_sent : counters->messages_received);
    }
    completed[num_completed] = Ticket{ticket};
    free_.push_back(ticket);
  }
  return num_completed;
}

void ShapedTransport::wait(std::chrono::nanoseconds limit) {
  if (has_ready()) return inner_.wait(std::chrono::nanoseconds(0));  // which throws if anybody has failed
  if (num_late_ > 0) return inner_.wait(std::min<std::chrono::nanoseconds>(limit, late_slice));
  if (sleeper_ != std::this_thread::get_id()) {
    sleeper_ = std::this_thread::get_id();
    sharpen_sleeps();
  }
  board_.sleep(rank(), until(),
               comm::LinkBoard::now() + std::min<std::chrono::nanoseconds>(limit, longest_sleep).count());
  inner_.wait(std::chrono::nanoseconds(0));
}

void ShapedTransport::notify() noexcept {
  board_.wake(rank());
  inner_.notify();
}

void ShapedTransport::fail(std::string_view reason) noexcept {
  inner_.fail(reason);
  board_.wake_all();
}

void ShapedTransport::computing(bool is_computing) {
  hand_out_until_.store(is_computing ? comm::LinkBoard::now() : always, std::memory_order_release);
  if (!is_computing) notify();
}

}  // namespace plumb

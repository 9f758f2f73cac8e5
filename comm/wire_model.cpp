// SPDX-License-Identifier: Apache-2.0
#include "wire_model.hpp"

#include <algorithm>
#include <cmath>

namespace plumb::comm {
namespace {

constexpr std::int32_t none = -1;

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

std::size_t WireModel::bytes_needed(std::int32_t num_ranks, std::size_t most_messages) {
  const auto ranks = static_cast<std::size_t>(num_ranks);
  return aligned(sizeof(Header)) + aligned(ranks * sizeof(Rank)) +
         aligned(ranks * ranks * num_lanes * sizeof(Channel)) + aligned(most_messages * sizeof(Record));
}

WireModel::WireModel(std::byte* block, bool fresh, std::int32_t num_ranks, std::size_t most_messages,
                     const LinkShape& shape)
    : num_ranks_(static_cast<std::size_t>(num_ranks)), most_messages_(most_messages), shape_(shape) {
  header_ = reinterpret_cast<Header*>(block);
  block += aligned(sizeof(Header));
  ranks_ = reinterpret_cast<Rank*>(block);
  block += aligned(num_ranks_ * sizeof(Rank));
  channels_ = reinterpret_cast<Channel*>(block);
  block += aligned(num_ranks_ * num_ranks_ * num_lanes * sizeof(Channel));
  records_ = reinterpret_cast<Record*>(block);
  changed_egress_.reserve(2 * num_ranks_);
  changed_ingress_.reserve(2 * num_ranks_);
  to_wake_.reserve(num_ranks_);
  if (fresh) layout_block();
}

void WireModel::layout_block() {
  constexpr Queue empty{none, none};
  *header_ = {most_messages_ > 0 ? 0 : none, 0};
  std::fill_n(ranks_, num_ranks_, Rank{none, none, empty, empty, 0, 0});
  std::fill_n(channels_, num_ranks_ * num_ranks_ * num_lanes, Channel{empty, empty, 0});
  for (std::size_t i = 0; i < most_messages_; ++i) {
    records_[i] = Record{};
    records_[i].next = i + 1 < most_messages_ ? static_cast<std::int32_t>(i + 1) : none;
  }
}

void WireModel::append(Queue& queue, std::int32_t index) {
  record(index).next = none;
  (queue.head == none ? queue.head : record(queue.tail).next) = index;
  queue.tail = index;
}

std::int32_t WireModel::pop(Queue& queue) {
  const std::int32_t index = queue.head;
  queue.head = record(index).next;
  return index;
}

WireModel::Time WireModel::duration(std::int64_t size_bytes) const {
  return static_cast<Time>(std::llround(static_cast<double>(size_bytes) * shape_.ns_per_byte));
}

bool WireModel::post(Time now, PeerId from, PeerId to, Lane lane, bool is_send, std::uint32_t ticket,
                     std::size_t size_bytes, std::uint64_t turn) {
  advance(now);
  Channel& where = channel(from.value, to.value, static_cast<std::int32_t>(lane));
  const bool matches = where.one_sided.head != none && (where.sends_ahead != 0) != is_send;
  std::int32_t index = none;
  if (matches) {
    index = pop(where.one_sided);
  } else {
    index = header_->free_records;
    if (index == none) return false;
    header_->free_records = record(index).next;
    Record& fresh = record(index);
    fresh = Record{};
    fresh.from = from.value;
    fresh.to = to.value;
    fresh.lane = static_cast<std::uint8_t>(lane);
    where.sends_ahead = is_send ? 1 : 0;
    append(where.one_sided, index);
  }
  Record& message = record(index);
  (is_send ? message.send_ticket : message.receive_ticket) = ticket;
  (is_send ? message.send_turn : message.receive_turn) = turn;
  if (is_send) {
    message.send_posted = now;
    message.size_bytes = static_cast<std::int64_t>(size_bytes);
  }
  if (++message.num_ends == 2) make_ready(now, index);
  return true;
}

void WireModel::make_ready(Time now, std::int32_t index) {
  Record& message = record(index);
  message.order = header_->num_ready++;
  if (!shape_.single_stream && duration(message.size_bytes) == 0) return start(now, index);
  Queue& ready = channel(message.from, message.to, message.lane).ready;
  append(ready, index);
  // Were its ends free and another message waiting for them, that one would have started.
  if (ready.head != index || !may_start(message)) return;
  pop(ready);
  changed_egress_.clear();
  changed_ingress_.clear();
  start(now, index);
  if (shape_.single_stream) start_ready(now);
}

void WireModel::start(Time now, std::int32_t index) {
  Record& message = record(index);
  const Time holds = duration(message.size_bytes);
  message.started = now;
  message.left = now + holds;
  message.arrived = message.left + shape_.latency.count();
  Rank& sender = rank(message.from);
  Rank& receiver = rank(message.to);
  if (holds > 0) {
    sender.egress = index;
    receiver.ingress = index;
  }
  if (shape_.single_stream) {
    ++sender.next_turn;
    ++receiver.next_turn;
    mark_changed(message.from, message.to);
  }
  append(sender.departures, index);
  message.next_arrival = none;
  (receiver.arrivals.head == none ? receiver.arrivals.head : record(receiver.arrivals.tail).next_arrival) = index;
  receiver.arrivals.tail = index;
  note_due(message.from, message.left);
  note_due(message.to, message.arrived);
}

void WireModel::note_due(std::int32_t rank_index, Time due) {
  Rank& sleeper = rank(rank_index);
  if (due >= sleeper.wake_time) return;
  sleeper.wake_time = 0;  // once is enough
  to_wake_.push_back(PeerId{rank_index});
}

void WireModel::advance(Time now) {
  for (;;) {
    Time at = never;
    for (std::size_t r = 0; r < num_ranks_; ++r) {
      if (ranks_[r].egress != none) at = std::min(at, record(ranks_[r].egress).left);
    }
    if (at > now) return;
    release_all(at);
    start_ready(at);
  }
}

void WireModel::release_all(Time at) {
  changed_egress_.clear();
  changed_ingress_.clear();
  for (std::size_t r = 0; r < num_ranks_; ++r) {
    if (ranks_[r].egress == none || record(ranks_[r].egress).left != at) continue;
    const std::int32_t to = record(ranks_[r].egress).to;
    mark_changed(static_cast<std::int32_t>(r), to);
    rank(to).ingress = none;
    ranks_[r].egress = none;
  }
}

void WireModel::mark_changed(std::int32_t from, std::int32_t to) {
  changed_egress_.push_back(from);
  changed_ingress_.push_back(to);
  if (!shape_.single_stream) return;
  changed_egress_.push_back(to);
  changed_ingress_.push_back(from);
}

// Only messages that need one of the ends just freed can start; best first, until none can.
void WireModel::start_ready(Time at) {
  for (;;) {
    std::int32_t best = none;
    for (std::int32_t other = 0; other < static_cast<std::int32_t>(num_ranks_); ++other) {
      for (const std::int32_t from : changed_egress_)
        consider(from, other, best);
      for (const std::int32_t to : changed_ingress_)
        consider(other, to, best);
    }
    if (best == none) return;
    const Record& message = record(best);
    pop(channel(message.from, message.to, message.lane).ready);
    start(at, best);
  }
}

void WireModel::consider(std::int32_t from, std::int32_t to, std::int32_t& best) {
  for (std::int32_t lane = 0; lane < static_cast<std::int32_t>(num_lanes); ++lane) {
    const std::int32_t head = channel(from, to, lane).ready.head;
    if (head != none && may_start(record(head)) && (best == none || goes_before(head, best))) best = head;
  }
}

bool WireModel::may_start(const Record& message) const {
  const Rank& sender = rank(message.from);
  const Rank& receiver = rank(message.to);
  const bool free = sender.egress == none && receiver.ingress == none;
  if (!shape_.single_stream) return free;
  if (message.send_turn != sender.next_turn || message.receive_turn != receiver.next_turn) return false;
  return duration(message.size_bytes) == 0 || (free && sender.ingress == none && receiver.egress == none);
}

bool WireModel::goes_before(std::int32_t a, std::int32_t b) const {
  const Record& x = record(a);
  const Record& y = record(b);
  if (shape_.urgent_first && x.lane != y.lane) return x.lane == static_cast<std::uint8_t>(Lane::urgent);
  return x.send_posted != y.send_posted ? x.send_posted < y.send_posted : x.order < y.order;
}

std::optional<WireModel::Completion> WireModel::take(PeerId who, Time until) {
  Rank& mine = rank(who.value);
  const std::int32_t departure = mine.departures.head;
  const std::int32_t arrival = mine.arrivals.head;
  const Time left = departure == none ? never : record(departure).left;
  const Time arrived = arrival == none ? never : record(arrival).arrived;
  if (std::min(left, arrived) > until || std::min(left, arrived) == never) return std::nullopt;
  if (left <= arrived) {
    pop(mine.departures);
    return taken(departure, true);
  }
  mine.arrivals.head = record(arrival).next_arrival;
  return taken(arrival, false);
}

std::optional<WireModel::Completion> WireModel::taken(std::int32_t index, bool departure) {
  Record& message = record(index);
  using std::chrono::nanoseconds;
  const Completion completion{departure ? message.send_ticket : message.receive_ticket,
                              {nanoseconds(message.started), nanoseconds(message.left), nanoseconds(message.arrived)}};
  if (++message.num_taken == 2) {
    message.next = header_->free_records;
    header_->free_records = index;
  }
  return completion;
}

WireModel::Time WireModel::next_completion(PeerId who) const {
  const Rank& mine = rank(who.value);
  const Time left = mine.departures.head == none ? never : record(mine.departures.head).left;
  return mine.arrivals.head == none ? left : std::min(left, record(mine.arrivals.head).arrived);
}

WireModel::Time WireModel::egress_free(PeerId who) const {
  const Rank& mine = rank(who.value);
  return mine.egress == none ? never : record(mine.egress).left;
}

void WireModel::set_wake_time(PeerId who, Time at) { rank(who.value).wake_time = at; }

std::span<const PeerId> WireModel::to_wake() { return to_wake_; }

}  // namespace plumb::comm

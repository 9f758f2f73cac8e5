// SPDX-License-Identifier: Apache-2.0
#include "transport_port.hpp"

#include <algorithm>

#include "message_event.hpp"
#include "plumb/runtime/run_error.hpp"
#include "step_words.hpp"

namespace plumb {

Lane to_lane(MessageLane lane) { return lane == MessageLane::urgent ? Lane::urgent : Lane::bulk; }

TransportPort::TransportPort(const RankPlan& plan, BlockStore& store, Transport& transport,
                             const ExecutorOptions& options)
    : plan_(plan),
      store_(store),
      transport_(transport),
      verify_(options.verify_messages),
      observer_(options.observer),
      in_flight_(plan.num_comm()),
      trailers_(verify_ ? plan.num_comm() : 0) {
  segments_.reserve(plan.most_segments + 1);
  const_segments_.reserve(plan.most_segments + 1);
}

void TransportPort::reserve() {
  std::size_t num_messages = 0;
  std::size_t num_segments = 0;
  for (std::size_t i = 0; i < plan_.num_comm(); ++i) {
    if (plan_.channel_of_comm[i] < 0) continue;
    ++num_messages;
    num_segments += plan_.segments_of_comm[i].size() + (verify_ ? 1 : 0);
  }
  transport_.reserve(num_messages, num_segments);
  comm_of_ticket_.resize(num_messages, -1);
}

void TransportPort::reset(std::int64_t step) {
  step_ = step;
  std::fill(in_flight_.begin(), in_flight_.end(), std::uint8_t{0});
  sent_ = received_ = Traffic{};
}

void TransportPort::post(std::int32_t comm) {
  const auto index = static_cast<std::size_t>(comm);
  const CommStep& step = plan_.steps().comm[index];
  if (observer_ != nullptr) observer_->message_starting(plan_.rank, message_event(plan_, comm));
  const bool sends = step.kind == CommKind::send;
  segments_.clear();
  const Range range = plan_.segments_of_comm[index];
  for (std::uint32_t i = range.begin; i < range.end; ++i) {
    const Slot slot = plan_.segments[i].slot;
    segments_.push_back({store_.data(slot), store_.bytes_of(slot.slot_class)});
  }
  if (verify_) {
    VerifyTrailer& trailer = trailers_[index];
    trailer = sends ? expected_trailer(comm) : VerifyTrailer{};
    segments_.push_back({reinterpret_cast<std::byte*>(&trailer), sizeof(VerifyTrailer)});
  }
  const PeerId peer{step.peer.value};
  Ticket ticket;
  if (sends) {
    const_segments_.clear();
    for (const Segment& segment : segments_)
      const_segments_.push_back({segment.data, segment.size_bytes});
    ticket = transport_.post_send(peer, to_lane(step.lane), const_segments_);
  } else {
    ticket = transport_.post_receive(peer, to_lane(step.lane), segments_);
  }
  if (ticket.value >= comm_of_ticket_.size()) comm_of_ticket_.resize(ticket.value + 1, -1);
  comm_of_ticket_[ticket.value] = comm;
  in_flight_[index] = 1;
}

bool TransportPort::collect(CommState& comm_state) {
  bool any = false;
  // One at a time, so that the change of the transport's counters belongs to one message.
  Ticket ticket;
  for (;;) {
    const ChannelCounters before = transport_.counters().total;
    if (transport_.progress({&ticket, 1}) == 0) return any;
    any = true;
    const std::int32_t comm = comm_of_ticket_[ticket.value];
    const auto index = static_cast<std::size_t>(comm);
    const CommStep& step = plan_.steps().comm[index];
    const ChannelCounters& after = transport_.counters().total;
    const bool sends = step.kind == CommKind::send;
    std::uint64_t bytes = sends ? after.bytes_sent - before.bytes_sent : after.bytes_received - before.bytes_received;
    if (verify_) {
      bytes -= sizeof(VerifyTrailer);
      if (!sends) check_trailer(comm);
    }
    Traffic& traffic = sends ? sent_ : received_;
    const bool forward = plan_.program->messages[step.message.index()].direction == Direction::forward;
    (forward ? traffic.forward_bytes : traffic.backward_bytes) += bytes;
    ++traffic.num_messages;
    in_flight_[index] = 0;
    if (observer_ != nullptr) observer_->message_finished(plan_.rank, message_event(plan_, comm));
    comm_state.message_finished(comm);
  }
}

VerifyTrailer TransportPort::expected_trailer(std::int32_t comm) const {
  const MessageId message = plan_.steps().comm[static_cast<std::size_t>(comm)].message;
  VerifyTrailer trailer = make_trailer(step_, message, plan_.program->messages[message.index()]);
  trailer.checksum = checksum_of(comm);
  return trailer;
}

std::uint64_t TransportPort::checksum_of(std::int32_t comm) const {
  std::uint64_t checksum = 0;
  const Range range = plan_.segments_of_comm[static_cast<std::size_t>(comm)];
  for (std::uint32_t i = range.begin; i < range.end; ++i) {
    const Slot slot = plan_.segments[i].slot;
    checksum = extend_checksum(checksum, {store_.data(slot), store_.bytes_of(slot.slot_class)});
  }
  return checksum;
}

void TransportPort::check_trailer(std::int32_t comm) const {
  const VerifyTrailer expected = expected_trailer(comm);
  const VerifyTrailer& got = trailers_[static_cast<std::size_t>(comm)];
  if (got == expected) return;
  const RankId peer = plan_.steps().comm[static_cast<std::size_t>(comm)].peer;
  throw MessageMismatch(plan_.rank, comm_action(plan_, comm), peer,
                        "rank " + std::to_string(peer.value) + " sent " + difference(expected, got));
}

std::int32_t TransportPort::oldest_in_flight(RankId peer, Lane lane, bool sends) const {
  for (const ChannelQueue& queue : plan_.channels) {
    if (queue.peer != peer || to_lane(queue.lane) != lane || queue.sends != sends) continue;
    for (const std::int32_t comm : queue.steps) {
      if (in_flight_[static_cast<std::size_t>(comm)] != 0) return comm;
    }
  }
  return -1;
}

}  // namespace plumb

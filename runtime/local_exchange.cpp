// SPDX-License-Identifier: Apache-2.0
#include "local_exchange.hpp"

#include <cstring>

#include <fmt/format.h>

#include "message_event.hpp"
#include "plumb/runtime/run_error.hpp"
#include "step_words.hpp"

namespace plumb {

LocalExchange::LocalExchange(std::int32_t num_ranks)
    : num_ranks_(static_cast<std::size_t>(num_ranks)),
      channels_(num_ranks_ * num_ranks_ * num_lanes),
      sent_(num_ranks_),
      received_(num_ranks_) {}

void LocalExchange::add_rank(const RankPlan& plan, BlockStore& store) { ranks_.push_back({&plan, &store}); }

void LocalExchange::reset() {
  for (Channel& channel : channels_) {
    channel.sends.clear();
    channel.receives.clear();
    channel.num_matched = 0;
  }
  finished_.clear();
  next_finished_ = 0;
  for (auto* all : {&sent_, &received_}) {
    for (Traffic& traffic : *all)
      traffic = Traffic{};
  }
}

const CommStep& LocalExchange::step_of(const End& end) const {
  return ranks_[end.rank.index()].plan->steps().comm[static_cast<std::size_t>(end.comm)];
}

void LocalExchange::post(RankId rank, std::int32_t comm, StepObserver* observer) {
  const CommStep& step = step_of({rank, comm});
  if (observer != nullptr) observer->message_starting(rank, message_event(*ranks_[rank.index()].plan, comm));
  const bool sends = step.kind == CommKind::send;
  const std::size_t from = sends ? rank.index() : step.peer.index();
  const std::size_t to = sends ? step.peer.index() : rank.index();
  Channel& channel = channels_[(from * num_ranks_ + to) * num_lanes + static_cast<std::size_t>(step.lane)];
  (sends ? channel.sends : channel.receives).push_back({rank, comm});
  const std::size_t next = channel.num_matched;
  if (channel.sends.size() > next && channel.receives.size() > next) {
    ++channel.num_matched;
    match(channel.sends[next], channel.receives[next]);
  }
}

void LocalExchange::match(const End& send, const End& receive) {
  const Rank& from = ranks_[send.rank.index()];
  const Rank& to = ranks_[receive.rank.index()];
  const std::span<const Slot> sent = from.plan->steps().segments_of(step_of(send).segments);
  const std::span<const Slot> received = to.plan->steps().segments_of(step_of(receive).segments);
  std::uint64_t bytes = 0;
  bool fits = sent.size() == received.size();
  for (std::size_t i = 0; fits && i < sent.size(); ++i) {
    fits = sent[i].slot_class == received[i].slot_class;
    if (!fits) break;
    const std::size_t size = to.store->bytes_of(received[i].slot_class);
    std::memcpy(to.store->data(received[i]), from.store->data(sent[i]), size);
    bytes += size;
  }
  if (!fits) {
    throw MessageMismatch(
        receive.rank, comm_action(*to.plan, receive.comm), send.rank,
        fmt::format("rank {} sent {} segments, expected {}", send.rank.value, sent.size(), received.size()));
  }
  const bool forward = to.plan->program->messages[step_of(receive).message.index()].direction == Direction::forward;
  for (Traffic* traffic : {&sent_[send.rank.index()], &received_[receive.rank.index()]}) {
    (forward ? traffic->forward_bytes : traffic->backward_bytes) += bytes;
    ++traffic->num_messages;
  }
  finished_.push_back(send);
  finished_.push_back(receive);
}

std::optional<LocalExchange::End> LocalExchange::next_finished() {
  if (next_finished_ == finished_.size()) {
    finished_.clear();
    next_finished_ = 0;
    return std::nullopt;
  }
  return finished_[next_finished_++];
}

}  // namespace plumb

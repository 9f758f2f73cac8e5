// SPDX-License-Identifier: Apache-2.0
#include "comm_state.hpp"

#include <algorithm>
#include <cstring>

namespace plumb {
namespace {

// An add of a large tensor takes milliseconds; between slices messages are looked after. 128 Ki elements stay in the
// cache.
constexpr std::size_t slice_elements = std::size_t{1} << 17;

template <class T>
void combine(std::byte* sum, const std::byte* arrived, std::size_t begin, std::size_t end, bool overwrite) {
  T* const to = reinterpret_cast<T*>(sum);
  const T* const from = reinterpret_cast<const T*>(arrived);
  if (overwrite) {
    std::copy(from + begin, from + end, to + begin);
    return;
  }
  for (std::size_t i = begin; i < end; ++i)
    to[i] += from[i];
}

}  // namespace

CommState::CommState(const RankPlan& plan, StepMemory& memory, MessagePort& port)
    : plan_(plan), memory_(memory), port_(port) {
  done_.resize(plan.num_comm());
  next_in_channel_.resize(plan.channels.size());
  for (auto& channels : postable_)
    channels.reserve(plan.channels.size());
  pressing_sums_.steps.reserve(plan.num_comm());
  other_sums_.steps.reserve(plan.num_comm());
  find_pressing();
  reset();
}

// Waits point backward in the list, so one walk from its end sees what hangs on a step before the step.
void CommState::find_pressing() {
  pressing_.assign(plan_.num_comm(), 0);
  for (std::size_t i = plan_.num_comm(); i-- > 0;) {
    if (plan_.channel_of_comm[i] >= 0) continue;
    bool presses = !plan_.compute_after_comm[i].empty();
    for (const std::int32_t next : plan_.comm_after_comm[i]) {
      const auto index = static_cast<std::size_t>(next);
      const std::int32_t channel = plan_.channel_of_comm[index];
      presses =
          presses || (channel < 0 ? pressing_[index] != 0
                                  : plan_.channels[static_cast<std::size_t>(channel)].lane == MessageLane::urgent);
    }
    pressing_[i] = presses ? 1 : 0;
  }
}

void CommState::reset() {
  waits_left_ = plan_.num_waits_of_comm;
  compute_waits_left_ = plan_.num_comm_waits_of_compute;
  std::fill(done_.begin(), done_.end(), std::uint8_t{0});
  std::fill(next_in_channel_.begin(), next_in_channel_.end(), std::size_t{0});
  for (auto& channels : postable_)
    channels.clear();
  for (SumQueue* queue : {&pressing_sums_, &other_sums_}) {
    queue->steps.clear();
    queue->next = queue->offset = 0;
  }
  num_computed_ = runnable_ = num_done_ = 0;
  for (std::size_t i = 0; i < plan_.num_comm(); ++i) {
    if (waits_left_[i] > 0 || plan_.channel_of_comm[i] >= 0) continue;
    (pressing_[i] != 0 ? pressing_sums_ : other_sums_).steps.push_back(static_cast<std::int32_t>(i));
  }
  for (std::size_t i = 0; i < plan_.channels.size(); ++i)
    enqueue(static_cast<std::int32_t>(i));
  while (runnable_ < plan_.num_compute() && compute_waits_left_[runnable_] == 0)
    ++runnable_;
}

bool CommState::computed(std::size_t count) {
  if (count == num_computed_) return false;
  for (; num_computed_ < count; ++num_computed_) {
    for (const std::int32_t comm : plan_.comm_after_compute[num_computed_])
      satisfied(comm);
  }
  return true;
}

// One wait less; the step that has none left becomes postable if it stands at the head of its queue.
void CommState::satisfied(std::int32_t comm) {
  if (--waits_left_[static_cast<std::size_t>(comm)] > 0) return;
  const std::int32_t channel = plan_.channel_of_comm[static_cast<std::size_t>(comm)];
  if (channel < 0) {
    (pressing_[static_cast<std::size_t>(comm)] != 0 ? pressing_sums_ : other_sums_).steps.push_back(comm);
    return;
  }
  const auto index = static_cast<std::size_t>(channel);
  if (plan_.channels[index].steps[next_in_channel_[index]] == comm) enqueue(channel);
}

void CommState::enqueue(std::int32_t channel) {
  const ChannelQueue& queue = plan_.channels[static_cast<std::size_t>(channel)];
  const std::size_t next = next_in_channel_[static_cast<std::size_t>(channel)];
  if (next == queue.steps.size() || waits_left_[static_cast<std::size_t>(queue.steps[next])] > 0) return;
  postable_[static_cast<std::size_t>(queue.lane)].push_back(channel);
}

void CommState::post(std::int32_t channel) {
  const auto index = static_cast<std::size_t>(channel);
  const std::int32_t comm = plan_.channels[index].steps[next_in_channel_[index]];
  const Range range = plan_.segments_of_comm[static_cast<std::size_t>(comm)];
  for (std::uint32_t i = range.begin; i < range.end; ++i) {
    const PlannedSegment& segment = plan_.segments[i];
    memory_.take(segment, comm);
    if (segment.counter >= 0) memory_.check_complete(segment.counter, comm);
  }
  port_.post(comm);
  ++next_in_channel_[index];
  enqueue(channel);
}

bool CommState::post_all(MessageLane lane) {
  std::vector<std::int32_t>& channels = postable_[static_cast<std::size_t>(lane)];
  const bool any = !channels.empty();
  while (!channels.empty()) {
    const std::int32_t channel = channels.back();
    channels.pop_back();
    post(channel);
  }
  return any;
}

bool CommState::advance() {
  const bool urgent = post_all(MessageLane::urgent);
  if (work_on_sums(pressing_sums_)) return true;
  const bool bulk = post_all(MessageLane::bulk);
  return work_on_sums(other_sums_) || urgent || bulk;
}

bool CommState::work_on_sums(SumQueue& queue) {
  if (queue.next == queue.steps.size()) return false;
  const std::int32_t comm = queue.steps[queue.next];
  if (queue.offset == 0) begin_sum(comm);
  const CommStep& step = plan_.steps().comm[static_cast<std::size_t>(comm)];
  const Range range = plan_.segments_of_comm[static_cast<std::size_t>(comm)];
  BlockStore& store = memory_.store();
  const PlannedSegment& into = plan_.segments[range.begin];
  const View sum = store.view(into.slot);
  const auto size = static_cast<std::size_t>(sum.num_elements());
  const std::size_t end = std::min(size, queue.offset + slice_elements);
  if (step.kind == CommKind::zero) {
    const std::size_t element_bytes = bytes_per_element(sum.storage);
    std::memset(store.data(into.slot) + queue.offset * element_bytes, 0, (end - queue.offset) * element_bytes);
  } else {
    const std::byte* arrived = store.data(plan_.segments[range.begin + 1].slot);
    const auto combine_as = sum.storage == Storage::fp64 ? combine<double> : combine<float>;
    combine_as(store.data(into.slot), arrived, queue.offset, end, step.first_touch);
  }
  queue.offset = end;
  if (end < size) return true;
  queue.offset = 0;
  ++queue.next;
  if (into.counter >= 0) memory_.counts().add(into.counter);
  done(comm);
  return true;
}

void CommState::begin_sum(std::int32_t comm) {
  const Range range = plan_.segments_of_comm[static_cast<std::size_t>(comm)];
  for (std::uint32_t i = range.begin; i < range.end; ++i)
    memory_.take(plan_.segments[i], comm);
}

void CommState::message_finished(std::int32_t comm) { done(comm); }

void CommState::done(std::int32_t comm) {
  const auto index = static_cast<std::size_t>(comm);
  memory_.comm_finished(comm);
  done_[index] = 1;
  ++num_done_;
  for (const std::int32_t next : plan_.comm_after_comm[index])
    satisfied(next);
  for (const std::int32_t compute : plan_.compute_after_comm[index]) {
    --compute_waits_left_[static_cast<std::size_t>(compute)];
  }
  while (runnable_ < plan_.num_compute() && compute_waits_left_[runnable_] == 0)
    ++runnable_;
}

std::optional<CommState::Blocker> CommState::blocker(std::size_t compute) const {
  if (compute < plan_.num_compute()) {
    for (const Wait& wait : plan_.steps().waits_of(plan_.steps().compute[compute].waits)) {
      if (wait.on == Wait::On::comm && done_[static_cast<std::size_t>(wait.step)] == 0) return root_of(wait.step);
    }
    return std::nullopt;
  }
  for (std::size_t i = 0; i < done_.size(); ++i) {
    if (done_[i] == 0) return root_of(static_cast<std::int32_t>(i));
  }
  return std::nullopt;
}

CommState::Blocker CommState::root_of(std::int32_t comm) const {
  // Each turn goes one wait back; a wrong program may have a circle, so the walk is bounded.
  for (std::size_t turn = 0; turn <= plan_.num_comm(); ++turn) {
    const auto index = static_cast<std::size_t>(comm);
    std::int32_t before = -1;
    for (const Wait& wait : plan_.steps().waits_of(plan_.steps().comm[index].waits)) {
      const auto waited = static_cast<std::size_t>(wait.step);
      if (wait.on == Wait::On::compute && waited >= num_computed_) return {false, +wait.step};
      if (wait.on == Wait::On::comm && done_[waited] == 0) before = wait.step;
    }
    if (before < 0 && plan_.channel_of_comm[index] >= 0) {
      const auto channel = static_cast<std::size_t>(plan_.channel_of_comm[index]);
      const std::vector<std::int32_t>& queue = plan_.channels[channel].steps;
      const std::size_t head = next_in_channel_[channel];
      if (head < queue.size() && queue[head] < comm) before = queue[head];
    }
    if (before < 0) break;
    comm = before;
  }
  return {true, comm};
}

}  // namespace plumb

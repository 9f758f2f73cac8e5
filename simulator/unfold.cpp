// SPDX-License-Identifier: Apache-2.0
#include "unfold.hpp"

#include <algorithm>

namespace plumb {
namespace {

// What is known about an entry of the long list: `own`, of the short list's entry of the same number, holds what
// happened until the end of the period; `moved`, of the one that stands as far from the list's end, what happened after
// it; `before` is the entry one period back. Those that are missing are null.
struct Times {
  SimTime end{0};       // of the period
  SimTime duration{0};  // of one
  SimTime all{0};       // of those left out

  SimTime pick(const SimTime* own, const SimTime* moved, const SimTime& before) const {
    if (own != nullptr && *own <= end) return *own;
    if (moved != nullptr && *moved > end) return *moved + all;
    return before + duration;
  }
  ComputeTimes pick(const ComputeTimes* own, const ComputeTimes* moved, const ComputeTimes& before) const {
    if (own != nullptr && own->start <= end) return *own;
    if (moved != nullptr && moved->start > end) return later(*moved, all);
    return later(before, duration);
  }
  MessageTimes pick(const MessageTimes* own, const MessageTimes* moved, const MessageTimes& before) const {
    MessageTimes times = later(before, duration);
    const auto take = [&](SimTime MessageTimes::*field) {
      times.*field =
          pick(own == nullptr ? nullptr : &(own->*field), moved == nullptr ? nullptr : &(moved->*field), before.*field);
    };
    take(&MessageTimes::send_ready);
    take(&MessageTimes::posted);
    take(&MessageTimes::start);
    take(&MessageTimes::sent);
    // Told when the message left the wire.
    if (own != nullptr && own->sent <= end) {
      times.arrived = own->arrived;
    } else if (moved != nullptr && moved->sent > end) {
      times.arrived = moved->arrived + all;
    }
    return times;
  }

  static SimTime later(SimTime time, SimTime by) { return time + by; }
  static ComputeTimes later(const ComputeTimes& times, SimTime by) {
    return {times.start + by, times.end + by, times.exposed};
  }
  static MessageTimes later(const MessageTimes& times, SimTime by) {
    return {times.send_ready + by, times.posted + by,  times.start + by,
            times.sent + by,       times.arrived + by, times.units};
  }

  bool all_until_end(const SimTime& time) const { return time <= end; }
  bool all_until_end(const ComputeTimes& times) const { return times.start <= end; }
  bool all_until_end(const MessageTimes& times) const { return times.sent <= end; }
  bool all_after_end(const SimTime& time) const { return time > end; }
  bool all_after_end(const ComputeTimes& times) const { return times.start > end; }
  bool all_after_end(const MessageTimes& times) const { return times.send_ready > end && times.posted > end; }
};

template <class T>
void unfold(std::vector<T>& list, const ListCut& cut, const Times& times) {
  if (cut.left_out == 0) return;
  // Before `low` everything happened until the end of the period, from `high` on everything after it.
  std::size_t low = 0;
  while (low < list.size() && times.all_until_end(list[low]))
    ++low;
  std::size_t high = list.size();
  while (high > low && times.all_after_end(list[high - 1]))
    --high;
  const std::vector<T> rest(list.begin() + static_cast<std::ptrdiff_t>(low), list.end());
  const std::size_t size = list.size() + static_cast<std::size_t>(cut.left_out);
  const auto period = static_cast<std::size_t>(cut.period);
  const std::size_t moved_from = low + static_cast<std::size_t>(cut.left_out);  // and behind it
  const std::size_t moved_high = high + static_cast<std::size_t>(cut.left_out);
  list.resize(low);
  list.reserve(size);
  const auto mixed = [&](std::size_t end) {
    for (std::size_t i = list.size(); i < end; ++i) {
      const T* const own = i < high ? &rest[i - low] : nullptr;
      const T* const moved = i >= moved_from ? &rest[i - moved_from] : nullptr;
      list.push_back(times.pick(own, moved, list[i - period]));
    }
  };
  mixed(std::min(high, size));
  while (list.size() < moved_from)
    list.push_back(times.later(list[list.size() - period], times.duration));
  mixed(moved_high);
  while (list.size() < size)
    list.push_back(times.later(rest[list.size() - moved_from], times.all));
}

// visit(time) of every end behind the cut that waits for nothing; `left_out` of the messages before it are missing.
template <class Visit>
void for_each_unconditional(Timeline& timeline, const Program& program, const ProgramCut& cut, std::int32_t left_out,
                            Visit&& visit) {
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const ListCut& comms = cut.comm[rank];
    for (std::int32_t i = comms.at + comms.left_out; i < comms.original_size(); ++i) {
      const CommStep& step = program.ranks[rank].comm[static_cast<std::size_t>(i)];
      if (step.waits.size() > 0) continue;
      if (step.kind != CommKind::send && step.kind != CommKind::receive) continue;
      MessageTimes& message = timeline.messages[static_cast<std::size_t>(step.message.value - left_out)];
      visit(step.kind == CommKind::send ? message.send_ready : message.posted);
    }
  }
}

}  // namespace

void unfold(Timeline& timeline, const Program& program, const ProgramCut& cut, SimTime begin, SimTime end) {
  const SimTime duration = end - begin;
  const Times times{end, duration, cut.periods * duration};
  for_each_unconditional(timeline, program, cut, cut.messages.left_out, [&](SimTime& time) { time = timeline.step; });
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    unfold(timeline.ranks[rank].compute, cut.compute[rank], times);
    unfold(timeline.ranks[rank].comm_done, cut.comm[rank], times);
  }
  unfold(timeline.messages, cut.messages, times);
  for_each_unconditional(timeline, program, cut, 0, [](SimTime& time) { time = SimTime(0); });
  timeline.step += times.all;
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "periods_ahead.hpp"

#include <algorithm>
#include <limits>

namespace plumb {
namespace {

constexpr std::int32_t any_number = std::numeric_limits<std::int32_t>::max();

bool moves(const CommStep& step) { return step.kind == CommKind::send || step.kind == CommKind::receive; }

// What happens once more happens in front of `end`, one period later each time; all of that must be as before.
// `same(i)`: entry i + steps is entry i one period later. Looks no further than `most` times ask for.
template <class Same>
std::int32_t times_in(const ListPeriod& list, std::int32_t size, std::int32_t most, Same&& same) {
  if (list.steps == 0) {
    // Nothing finished. What waits must not have been touched either, which equal states say.
    return any_number;
  }
  const std::int64_t wanted = list.end + (std::int64_t{most} - 1) * list.steps;
  const auto until = static_cast<std::int32_t>(std::min<std::int64_t>(size - list.steps, wanted));
  if (most == 0) return 0;
  std::int32_t i = list.begin;
  while (i < until && same(i))
    ++i;
  return i < list.end ? 0 : (i + list.steps - list.end) / list.steps;
}

class Ahead {
 public:
  Ahead(const EngineState& state, const Period& period) : state_(state), period_(period) {}

  std::int32_t times() {
    const std::int64_t room = EngineState::max_step.count() - period_.end.count();
    std::int64_t times = std::min<std::int64_t>(room / period_.duration().count(), any_number);
    for (RankId rank; rank.index() < state_.program.ranks.size(); rank = rank.next())
      times = std::min<std::int64_t>(times, of_computes(rank, static_cast<std::int32_t>(times)));
    find_same_messages();
    for (RankId rank; rank.index() < state_.program.ranks.size(); rank = rank.next())
      times = std::min<std::int64_t>(times, of_comms(rank, static_cast<std::int32_t>(times)));
    return static_cast<std::int32_t>(times);
  }

 private:
  std::int32_t of_computes(RankId rank, std::int32_t most) const {
    const ListPeriod& list = period_.compute[rank.index()];
    return times_in(list, length_of(state_.program.ranks[rank.index()].compute), most, [&](std::int32_t i) {
      const ComputeStep& step = state_.compute(rank, i);
      const ComputeStep& again = state_.compute(rank, i + list.steps);
      return step.compute.op == again.compute.op && step.compute.chunk == again.compute.chunk &&
             same_waits(rank, step.waits, again.waits);
    });
  }

  std::int32_t of_comms(RankId rank, std::int32_t most) const {
    const ListPeriod& list = period_.comm[rank.index()];
    return times_in(list, length_of(state_.program.ranks[rank.index()].comm), most, [&](std::int32_t i) {
      const CommStep& step = state_.comm(rank, i);
      const CommStep& again = state_.comm(rank, i + list.steps);
      return step.kind == again.kind && step.lane == again.lane && step.peer == again.peer &&
             step.segments.size() == again.segments.size() && same_waits(rank, step.waits, again.waits) &&
             (!moves(step) || same_message(step.message, again.message));
    });
  }

  // What had finished by then, one period earlier for the one that is one period earlier, is no more waited for.
  bool same_waits(RankId rank, Range range, Range again) const {
    const RankProgram& program = state_.program.ranks[rank.index()];
    const ListPeriod& computes = period_.compute[rank.index()];
    const ListPeriod& comms = period_.comm[rank.index()];
    const auto waits = program.waits_of(range);
    const auto waits_again = program.waits_of(again);
    const auto is_later = [&](Wait wait, Wait later) {
      const std::int32_t steps = wait.on == Wait::On::compute ? computes.steps : comms.steps;
      return later == Wait(wait.on, static_cast<std::int32_t>(wait.step) + steps);
    };
    if (std::equal(waits.begin(), waits.end(), waits_again.begin(), waits_again.end(), is_later)) return true;
    const auto counts = [&](Wait wait) {
      const auto step = static_cast<std::int32_t>(wait.step);
      return step >= (wait.on == Wait::On::compute ? computes.begin : comms.begin);
    };
    const auto counts_again = [&](Wait wait) {
      const auto step = static_cast<std::int32_t>(wait.step);
      return step >= (wait.on == Wait::On::compute ? computes.begin + computes.steps : comms.begin + comms.steps);
    };
    auto next = std::find_if(waits_again.begin(), waits_again.end(), counts_again);
    for (const Wait wait : waits) {
      if (!counts(wait)) continue;
      if (next == waits_again.end() || !is_later(wait, *next)) return false;
      next = std::find_if(next + 1, waits_again.end(), counts_again);
    }
    return next == waits_again.end();
  }

  bool same_message(MessageId message, MessageId again) const {
    return again.value - message.value == period_.messages && message.value >= first_message_ &&
           message.value < end_of_messages_;
  }

  // From the first one that the period's steps move on.
  void find_same_messages() {
    const std::vector<Message>& messages = state_.program.messages;
    first_message_ = any_number;
    for (RankId rank; rank.index() < state_.program.ranks.size(); rank = rank.next()) {
      const ListPeriod& list = period_.comm[rank.index()];
      for (std::int32_t i = list.begin; i < list.end; ++i) {
        const CommStep& step = state_.comm(rank, i);
        if (moves(step)) first_message_ = std::min(first_message_, step.message.value);
      }
    }
    end_of_messages_ = first_message_;
    if (period_.messages <= 0) return;
    while (end_of_messages_ < length_of(messages) - period_.messages) {
      const Message& message = messages[place(end_of_messages_)];
      const Message& again = messages[place(end_of_messages_ + period_.messages)];
      if (message.transfer != again.transfer || message.direction != again.direction) return;
      ++end_of_messages_;
    }
  }

  const EngineState& state_;
  const Period& period_;
  // Each of these is the same, one period later.
  std::int32_t first_message_ = 0;
  std::int32_t end_of_messages_ = 0;
};

}  // namespace

std::int32_t periods_ahead(const EngineState& state, const Period& period) { return Ahead(state, period).times(); }

}  // namespace plumb

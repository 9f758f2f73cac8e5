// SPDX-License-Identifier: Apache-2.0
#include "recurrence.hpp"

#include <algorithm>
#include <limits>

#include "periods_ahead.hpp"

namespace plumb {
namespace {

// A period of few steps is looked back to as seldom as one of many: a look costs as much as a few steps.
std::int32_t steps_of(const SteadyStretch& stretch) {
  constexpr std::size_t most_looks = 64;
  constexpr std::size_t fewest_steps_to_look = 16;
  const std::size_t steps = std::max((stretch.end - stretch.begin) / most_looks, fewest_steps_to_look);
  return static_cast<std::int32_t>((steps + stretch.actions - 1) / stretch.actions * stretch.actions);
}

}  // namespace

Recurrence::Recurrence(const EngineState& state) : state_(state), first_comm_(state.running.size(), 0) {
  std::vector<Action> row;
  row.reserve(state.program.ranks.front().compute.size());
  for (const ComputeStep& step : state.program.ranks.front().compute)
    row.push_back({step.compute, {}});
  // In a short one, as warm-up and cool-down have them, the last rank has not come before the first has gone.
  for (const SteadyStretch& stretch : steady_stretches(row)) {
    const std::size_t until_all_have_come = 2 * state.program.ranks.size();
    if (stretch.end - stretch.begin >= until_all_have_come + 2 * place(steps_of(stretch)))
      stretches_.push_back(stretch);
  }
}

void Recurrence::find_first_unfinished() {
  for (std::size_t r = 0; r < first_comm_.size(); ++r) {
    const std::vector<SimTime>& done = state_.timeline.ranks[r].comm_done;
    std::int32_t& comm = first_comm_[r];
    while (comm < length_of(done) && done[place(comm)] != EngineState::unfinished)
      ++comm;
  }
}

bool Recurrence::look_back() {
  const std::int32_t running = state_.running[0];
  while (stretch_ < stretches_.size() && place(running) >= stretches_[stretch_].end) {
    ++stretch_;
    num_failures_ = 0;
    past_.reset();
  }
  if (stretch_ == stretches_.size()) {
    next_ = std::numeric_limits<std::int32_t>::max();
    return false;
  }
  const SteadyStretch& stretch = stretches_[stretch_];
  if (place(running) < stretch.begin) {
    next_ = static_cast<std::int32_t>(stretch.begin);
    return false;
  }
  find_first_unfinished();
  const std::int32_t steps = steps_of(stretch);
  next_ = running + steps;
  if (past_) {
    if (is_past_again()) {
      times_ = periods_ahead(state_, period_);
      past_.reset();
      if (times_ > 0) {
        next_ = static_cast<std::int32_t>(stretch.end);
        return true;
      }
    }
    // A schedule whose state never comes back is looked at ever more seldom.
    constexpr std::int32_t patience = 6;
    if (++num_failures_ > patience) {
      next_ += (num_failures_ - patience) * steps;
      past_.reset();
      return false;
    }
  }
  past_ = past();
  return false;
}

std::vector<Recurrence::Coming> Recurrence::coming(std::int32_t messages) const {
  std::vector<Coming> all;
  state_.events.for_each([&](std::int64_t time, const SimEvent& event) {
    all.emplace_back(time - state_.now.count(), event.kind, event.index - (event.is_of_message() ? messages : 0));
  });
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<Recurrence::Waiting> Recurrence::waiting(std::int32_t messages) const {
  std::vector<Waiting> all;
  state_.arbiter.for_each_waiting(
      [&](NicArbiter::Link link, MessageLane lane, std::int64_t ready_at, std::int64_t order) {
        all.emplace_back(link.value, lane, state_.now.count() - ready_at, static_cast<std::int32_t>(order) - messages);
      });
  std::sort(all.begin(), all.end());
  return all;
}

Recurrence::Past Recurrence::past() const {
  Past here{.now = state_.now, .coming = coming(0), .waiting = waiting(0), .ranks = {}};
  for (std::size_t r = 0; r < first_comm_.size(); ++r) {
    RankPast& past = here.ranks.emplace_back();
    past.first_compute = state_.num_computed[r];
    past.first_comm = first_comm_[r];
    for (std::int32_t i = past.first_comm; i < state_.open[r].comms; ++i)
      past.comms.push_back(comm_now(RankId(r), i));
  }
  return here;
}

Recurrence::CommPast Recurrence::comm_now(RankId rank, std::int32_t index) const {
  CommPast now;
  if (index >= state_.open[rank.index()].comms) return now;
  now.finished = state_.timeline.ranks[rank.index()].comm_done[place(index)] != EngineState::unfinished;
  if (now.finished) return now;
  const StepState& state = state_.comm_state(rank, index);
  now.ready = state.pending == 0 && !state.is_receive();
  if (state.is_send() && now.ready) now.send_ready = state_.timeline.messages[state.message().index()].send_ready;
  return now;
}

// Of the first message that moves.
std::int32_t Recurrence::messages_of_period() const {
  for (std::size_t r = 0; r < past_->ranks.size(); ++r) {
    const RankId rank(r);
    const RankPast& before = past_->ranks[r];
    for (std::int32_t i = before.first_comm; i < first_comm_[r]; ++i) {
      const std::int32_t again = i + first_comm_[r] - before.first_comm;
      if (again >= length_of(state_.program.ranks[r].comm)) break;
      if (state_.comm_state(rank, i).is_end())
        return state_.comm(rank, again).message.value - state_.comm(rank, i).message.value;
    }
  }
  return 0;
}

bool Recurrence::is_past_again() {
  const std::int32_t messages = messages_of_period();
  if (past_->coming != coming(messages) || past_->waiting != waiting(messages)) return false;
  period_ = {.begin = past_->now, .end = state_.now, .messages = messages};
  for (std::size_t r = 0; r < past_->ranks.size(); ++r) {
    const RankPast& before = past_->ranks[r];
    const std::int32_t computes = state_.num_computed[r] - before.first_compute;
    const std::int32_t comms = first_comm_[r] - before.first_comm;
    // One computation more may have started.
    period_.compute.push_back({before.first_compute, computes, before.first_compute + computes + 1});
    period_.comm.push_back({before.first_comm, comms, state_.open[r].comms});
    if (!is_again(RankId(r))) return false;
  }
  return true;
}

bool Recurrence::is_again(RankId rank) const {
  const RankPast& before = past_->ranks[rank.index()];
  const RankProgram& program = state_.program.ranks[rank.index()];
  const ListPeriod& comms = period_.comm[rank.index()];
  if (comms.end + comms.steps > length_of(program.comm)) return false;
  for (std::int32_t i = comms.begin; i < comms.end; ++i) {
    const std::size_t looked_at = place(i - comms.begin);
    CommPast then = looked_at < before.comms.size() ? before.comms[looked_at] : CommPast{};
    then.send_ready = later(then.send_ready, period_.duration());
    if (comm_now(rank, i + comms.steps) != then) return false;
  }
  return true;
}

}  // namespace plumb

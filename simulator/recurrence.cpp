// SPDX-License-Identifier: Apache-2.0
#include "recurrence.hpp"

#include <algorithm>

namespace plumb {
namespace {

std::size_t place(std::int32_t i) { return static_cast<std::size_t>(i); }

// Times of what no computation stands behind are zero, and stay so.
bool is_later(SimTime time, SimTime before, SimTime by) {
  return time == before + by || (time == SimTime(0) && before == SimTime(0));
}

}  // namespace

Recurrence::Recurrence(const EngineState& state)
    : state_(state),
      watches_(state.cut.periods > 0),
      first_compute_(state.running.size(), 0),
      first_comm_(state.running.size(), 0) {
  if (watches_) next_ = state.cut.compute[0].begin;
}

bool Recurrence::find_first_unfinished() {
  for (std::size_t r = 0; r < first_compute_.size(); ++r) {
    const RankTimeline& times = state_.timeline.ranks[r];
    const std::int32_t running = state_.running[r];
    if (running < state_.cut.compute[r].begin) return false;
    first_compute_[r] = times.compute[place(running)].end > state_.now ? running : running + 1;
    std::int32_t& comm = first_comm_[r];
    while (comm < state_.cut.comm[r].size && times.comm_done[place(comm)] != EngineState::unfinished)
      ++comm;
    if (comm < state_.cut.comm[r].begin) return false;
  }
  return true;
}

void Recurrence::look_back() {
  const ListCut& first_rank = state_.cut.compute[0];
  std::int32_t later = first_rank.period;
  if (find_first_unfinished()) {
    if (past_ && is_past_again(*past_)) {
      found_ = true;
      watches_ = false;
      begin_ = past_->now;
      end_ = state_.now;
      past_.reset();
      return;
    }
    past_ = past();
  } else {
    constexpr std::int32_t looks_per_period = 8;
    later = std::max(1, later / looks_per_period);
  }
  next_ = state_.running[0] + later;
  if (next_ >= first_rank.at - first_rank.period) watches_ = false;
}

std::vector<Recurrence::Coming> Recurrence::coming(std::int32_t messages) const {
  std::vector<Coming> all;
  state_.events.for_each([&](std::int64_t time, const SimEvent& event) {
    const bool of_message = event.kind != SimEvent::Kind::computed;
    all.emplace_back(time - state_.now.count(), event.kind, event.index - (of_message ? messages : 0),
                     of_message ? computed_ago(MessageId(event.index)) : 0);
  });
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<Recurrence::Waiting> Recurrence::waiting(std::int32_t messages) const {
  std::vector<Waiting> all;
  state_.arbiter.for_each_waiting([&](NicArbiter::Link link, MessageLane lane, std::int64_t ready_at,
                                      std::int64_t order) {
    const MessageId message(static_cast<std::int32_t>(order));
    all.emplace_back(link.value, lane, state_.now.count() - ready_at, message.value - messages, computed_ago(message));
  });
  std::sort(all.begin(), all.end());
  return all;
}

std::int64_t Recurrence::computed_ago(MessageId message) const {
  const MessageEnds& ends = state_.graph.ends(message);
  const SimTime computed =
      std::max(state_.states[ends.send.index()].inputs_computed, state_.states[ends.receive.index()].inputs_computed);
  return computed == SimTime(0) ? -1 : (state_.now - computed).count();
}

Recurrence::Past Recurrence::past() const {
  Past here{.now = state_.now, .coming = coming(0), .waiting = waiting(0), .ranks = {}};
  for (std::size_t r = 0; r < first_compute_.size(); ++r) {
    const RankId rank(r);
    RankPast& past = here.ranks.emplace_back();
    past.first_compute = first_compute_[r];
    past.first_comm = first_comm_[r];
    for (std::int32_t i = past.first_compute; i < state_.cut.compute[r].at; ++i)
      past.computes.push_back(state_.states[state_.graph.compute(rank, i).index()]);
    for (std::int32_t i = past.first_comm; i < state_.cut.comm[r].at; ++i)
      past.comms.push_back(comm_now(rank, i));
  }
  return here;
}

Recurrence::CommPast Recurrence::comm_now(RankId rank, std::int32_t index) const {
  const StepState& state = state_.states[state_.graph.comm(rank, index).index()];
  CommPast now{.inputs_computed = state.inputs_computed,
               .send_ready = SimTime(0),
               .pending = state.pending,
               .gates = 0,
               .finished = state_.timeline.ranks[rank.index()].comm_done[place(index)] != EngineState::unfinished};
  if (state.subject >= 0) {
    const auto message = place(state.subject / 2);
    now.gates = state_.gates[message];
    if (state.subject % 2 == 0) now.send_ready = state_.timeline.messages[message].send_ready;
  }
  return now;
}

bool Recurrence::is_past_again(const Past& past) const {
  const std::int32_t messages = state_.cut.messages.period;
  if (past.coming != coming(messages) || past.waiting != waiting(messages)) return false;
  for (std::size_t r = 0; r < past.ranks.size(); ++r) {
    if (!is_again(past, RankId(r))) return false;
  }
  for (std::size_t r = 0; r < past.ranks.size(); ++r) {
    if (!all_ahead_is_untouched(past.ranks[r], RankId(r))) return false;
  }
  return true;
}

bool Recurrence::is_again(const Past& past, RankId rank) const {
  const RankPast& before = past.ranks[rank.index()];
  const SimTime by = state_.now - past.now;
  const ListCut& computes = state_.cut.compute[rank.index()];
  const ListCut& comms = state_.cut.comm[rank.index()];
  if (first_compute_[rank.index()] != before.first_compute + computes.period ||
      first_comm_[rank.index()] != before.first_comm + comms.period) {
    return false;
  }
  for (std::int32_t i = before.first_compute; i < computes.at - computes.period; ++i) {
    const StepState& now = state_.states[state_.graph.compute(rank, i + computes.period).index()];
    const StepState& then = before.computes[place(i - before.first_compute)];
    if (now.pending != then.pending) return false;
    // Behind another one it is the end of that one that counts.
    if (i == before.first_compute && !is_later(now.inputs_computed, then.inputs_computed, by)) return false;
  }
  for (std::int32_t i = before.first_comm; i < comms.at - comms.period; ++i) {
    const CommPast now = comm_now(rank, i + comms.period);
    const CommPast& then = before.comms[place(i - before.first_comm)];
    if (now.finished != then.finished) return false;
    if (now.finished) continue;
    if (now.pending != then.pending || now.gates != then.gates || !is_later(now.send_ready, then.send_ready, by)) {
      return false;
    }
    if (!is_later(now.inputs_computed, then.inputs_computed, by) && !waits_for_compute(rank, i + comms.period)) {
      return false;
    }
  }
  return waits_are_left_again(before, rank);
}

// Whether a computation that has not ended stands before a communication step or before the other end of its message:
// then it is the last one behind that message, and when those before it ended does not count.
bool Recurrence::waits_for_compute(RankId rank, std::int32_t comm) const {
  const auto waits = [&](RankId here, std::int32_t index) {
    const auto all = state_.program.ranks[here.index()].waits_of(state_.comm(here, index).waits);
    const std::int32_t first = first_compute_[here.index()];
    return std::any_of(all.begin(), all.end(), [&](const Wait& wait) {
      const bool behind = index >= state_.cut.comm[here.index()].at;
      return wait.on == Wait::On::compute && state_.cut.awaited(here, behind, wait) >= first;
    });
  };
  if (waits(rank, comm)) return true;
  const CommStep& step = state_.comm(rank, comm);
  if (step.kind != CommKind::send && step.kind != CommKind::receive) return false;
  const std::int32_t subject = state_.states[state_.graph.comm(rank, comm).index()].subject;
  const MessageEnds& ends = state_.graph.ends(MessageId(subject / 2));
  const StepId other = step.kind == CommKind::send ? ends.receive : ends.send;
  return waits(step.peer, state_.graph.local(step.peer, other).step);
}

// Before `waits_begin` it is only what is still waited for that must be the same.
bool Recurrence::waits_are_left_again(const RankPast& before, RankId rank) const {
  const RankProgram& program = state_.program.ranks[rank.index()];
  const RankTimeline& times = state_.timeline.ranks[rank.index()];
  const ListCut& computes = state_.cut.compute[rank.index()];
  const ListCut& comms = state_.cut.comm[rank.index()];
  const auto was_left = [&](Wait wait) {
    const auto step = static_cast<std::int32_t>(wait.step);
    if (wait.on == Wait::On::compute) return step >= before.first_compute;
    if (step < before.first_comm) return false;
    return step >= comms.at || !before.comms[place(step - before.first_comm)].finished;
  };
  const auto is_left = [&](Wait wait) {
    const auto step = static_cast<std::int32_t>(wait.step);
    if (wait.on == Wait::On::compute) return step >= first_compute_[rank.index()];
    return step >= comms.at || times.comm_done[place(step)] == EngineState::unfinished;
  };
  const auto same = [&](Range then, Range now) {
    const auto waited = program.waits_of(then);
    const auto waits = program.waits_of(now);
    auto next = waits.begin();
    for (const Wait& wait : waited) {
      if (!was_left(wait)) continue;
      next = std::find_if(next, waits.end(), is_left);
      const std::int32_t period = wait.on == Wait::On::compute ? computes.period : comms.period;
      if (next == waits.end() || *next != Wait(wait.on, static_cast<std::int32_t>(wait.step) + period)) return false;
      ++next;
    }
    return std::find_if(next, waits.end(), is_left) == waits.end();
  };
  for (std::int32_t i = before.first_compute; i < computes.waits_begin; ++i) {
    if (!same(state_.compute(rank, i).waits, state_.compute(rank, i + computes.period).waits)) return false;
  }
  for (std::int32_t i = before.first_comm; i < comms.waits_begin; ++i) {
    if (!same(state_.comm(rank, i).waits, state_.comm(rank, i + comms.period).waits)) return false;
  }
  return true;
}

// Neither did anything happen to what stands behind the cut, nor to the last period before it as it was a period ago;
// and what was left out could not have been touched either, because all that it waits for is unfinished.
bool Recurrence::all_ahead_is_untouched(const RankPast& before, RankId rank) const {
  const ListCut& computes = state_.cut.compute[rank.index()];
  const ListCut& comms = state_.cut.comm[rank.index()];
  const std::int32_t end_of_computes = first_compute_[rank.index()];
  std::int32_t end_of_comms = comms.size;
  const std::vector<SimTime>& comm_done = state_.timeline.ranks[rank.index()].comm_done;
  while (end_of_comms > 0 && comm_done[place(end_of_comms - 1)] == EngineState::unfinished)
    --end_of_comms;
  if (end_of_computes > computes.at - computes.period || end_of_comms > comms.at - comms.period) return false;
  const RankProgram& program = state_.program.ranks[rank.index()];
  const auto is_ahead = [&](Range waits) {
    const auto all = program.waits_of(waits);
    return std::all_of(all.begin(), all.end(), [&](const Wait& wait) {
      const auto step = static_cast<std::int32_t>(wait.step);
      return wait.on == Wait::On::compute ? step + computes.period >= end_of_computes
                                          : step + comms.period >= end_of_comms;
    });
  };
  for (std::int32_t i = computes.at - computes.period; i < computes.size; ++i) {
    const Range waits = state_.compute(rank, i).waits;
    const std::int32_t all = static_cast<std::int32_t>(waits.size()) + 1;
    if (i >= computes.at) {
      if (state_.states[state_.graph.compute(rank, i).index()].pending != all) return false;
    } else if (before.computes[place(i - before.first_compute)].pending != all || !is_ahead(waits)) {
      return false;
    }
  }
  for (std::int32_t i = comms.at - comms.period; i < comms.size; ++i) {
    const Range waits = state_.comm(rank, i).waits;
    const auto all = static_cast<std::int32_t>(waits.size());
    const StepState& now = state_.states[state_.graph.comm(rank, i).index()];
    if (i >= comms.at) {
      // An end that waits for nothing was there from the start (unfold.hpp).
      if (now.pending != all || (all == 0 && (now.subject < 0 || state_.gates[place(now.subject / 2)] == 0)))
        return false;
      continue;
    }
    const bool began = now.subject >= 0 ? state_.gates[place(now.subject / 2)] == 0 : now.pending == 0;
    if (began || before.comms[place(i - before.first_comm)].pending != all || !is_ahead(waits)) return false;
  }
  return true;
}

}  // namespace plumb

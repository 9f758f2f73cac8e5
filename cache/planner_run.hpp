// SPDX-License-Identifier: Apache-2.0
//
// planner_run.hpp (private): the list schedule behind planner.hpp, told step by step to whoever wants to know.
//
// A Sink has compute_starts(rank, index, start, end) and message_starts(message, start, end, arrival); both are called
// in the common order. Nothing is kept of what was told. If it also has mark() and repeat(times, duration,
// microbatches), then what it was told since the last mark may be told by one call as happening again, so many times,
// each time later by so much: the steady part of most steps. The state decides, not the times of single steps: when
// everything that is to come is what it was at the mark, only later, then so is what follows from it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "countdown.hpp"
#include "plan_tables.hpp"
#include "plumb/cache/arbiter.hpp"
#include "plumb/cache/event_queue.hpp"
#include "plumb/cache/steady.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/invariant.hpp"

namespace plumb {

template <class Sink>
class PlannerRun {
 public:
  PlannerRun(const Schedule& schedule, const Routing& routing, const PlanCosts& costs, Sink& sink)
      : schedule_(schedule),
        costs_(costs),
        tables_(routing, schedule.layout.num_chunks()),
        num_chunks_(static_cast<std::size_t>(schedule.layout.num_chunks())),
        chunks_(costs.chunks),
        sink_(sink),
        arbiter_(schedule.layout.pp(), costs.duplex),
        ranks_(static_cast<std::size_t>(schedule.layout.pp())),
        needs_forward_(tables_.forward_needs, num_rows()),
        needs_backward_(schedule.forward_only ? std::vector<std::int32_t>() : tables_.backward_needs, num_rows()),
        needs_message_(schedule.forward_only ? std::vector<std::int32_t>() : tables_.message_needs, num_rows()) {
    if (chunks_.empty()) {
      chunks_.assign(num_chunks_, {costs.forward, costs.backward_input, costs.backward_weight});
    }
    if (chunks_.size() != num_chunks_) {
      throw InputError(fmt::format("planner: costs of {} chunks for a layout of {}", chunks_.size(), num_chunks_));
    }
    for (PlanTables::Hop& hop : tables_.hops) {
      hop.link[0] = arbiter_.link(hop.from, hop.to);
      hop.link[1] = arbiter_.link(hop.to, hop.from);
    }
    if constexpr (tells_repetitions) find_stretches();
  }

  // The makespan.
  std::int64_t run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      start_compute(rank);
    while (true) {
      const std::int64_t next = events_.advance();
      if (next == EventQueue<Event>::never) break;
      now_ = next;
      for (Event event; events_.pop(event);)
        handle(event);
      start_messages();
      if constexpr (tells_repetitions) look_back();
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto& row = schedule_.ranks[rank];
      require(ranks_[rank].action == row.size(), [&] {
        return fmt::format("planner: rank {} is stuck at {}", rank, to_string(row[ranks_[rank].action]));
      });
    }
    return now_;
  }

 private:
  // Messages have numbers before the common order exists, and the numbers break ties between messages that became ready
  // at the same moment: earlier microbatches first, forward before backward, then by receiving rank and transfer, so
  // that a rank which closes a block serves the others in turn.
  struct Name {
    std::int32_t row = 0;    // twice the microbatch, plus one backward
    std::int32_t place = 0;  // of the transfer, among those of its direction
    std::int64_t number() const { return std::int64_t{row} << 32 | std::int64_t{place}; }
    static Name of(std::int64_t number) {
      return {static_cast<std::int32_t>(number >> 32), static_cast<std::int32_t>(number & 0xffffffff)};
    }
    std::size_t direction() const { return static_cast<std::size_t>(row & 1); }
    std::size_t microbatch() const { return static_cast<std::size_t>(row >> 1); }
  };

  struct Event {
    enum class Kind : std::uint8_t { computed, left_wire, arrived, left_and_arrived };
    std::int64_t subject = 0;  // four times a rank or a message number, plus the kind
  };
  static Event event(typename Event::Kind kind, std::int64_t subject) {
    return {subject * 4 + static_cast<std::int64_t>(kind)};
  }

  struct Rank {
    std::size_t action = 0;
    bool in_second = false;  // of an overlapped pair
    bool busy = false;
    std::int32_t index = 0;  // computations before this one
  };

  static constexpr bool tells_repetitions = requires(Sink & sink) { sink.mark(); };

  std::size_t num_rows() const { return static_cast<std::size_t>(schedule_.layout.microbatches()); }

  const Compute& head(std::size_t rank) const {
    const Action& action = schedule_.ranks[rank][ranks_[rank].action];
    return ranks_[rank].in_second ? *action.second : action.first;
  }

  std::int64_t duration(const Compute& compute) const {
    const PlanChunkCosts& times = chunks_[compute.chunk.index()];
    switch (compute.op) {
      case Op::forward:
        return times.forward;
      case Op::backward:
        return times.backward_input + times.backward_weight;
      case Op::backward_input:
        return times.backward_input;
      case Op::backward_weight:
        return times.backward_weight;
    }
    return 0;
  }

  void start_compute(std::size_t rank) {
    Rank& state = ranks_[rank];
    if (state.busy || state.action == schedule_.ranks[rank].size()) return;
    const Compute& compute = head(rank);
    if (compute.op != Op::backward_weight) {
      Countdown& needs = compute.op == Op::forward ? needs_forward_ : needs_backward_;
      if (needs(compute.microbatch.index(), compute.chunk.index()) > 0) return;
    }
    state.busy = true;
    const std::int64_t end = now_ + duration(compute);
    sink_.compute_starts(RankId(rank), state.index, now_, end);
    events_.push(end, event(Event::Kind::computed, static_cast<std::int64_t>(rank)));
  }

  void submit(const PlanTables::Hop& hop, Name name) {
    const std::size_t direction = name.direction();
    if ((direction == 0 ? costs_.value_unit : costs_.gradient_unit) == 0) {
      start_message(name);  // nothing to hold
      return;
    }
    arbiter_.submit(hop.link[direction], hop.lane, now_, name.number());
  }

  void submit_forward(TransferId id, std::size_t microbatch) {
    const PlanTables::Hop& hop = tables_.hops[id.index()];
    submit(hop, {static_cast<std::int32_t>(2 * microbatch), hop.place[0]});
  }

  const PlanTables::Hop& hop_of(Name name) const {
    return tables_.hops[tables_.by_place[name.direction()][static_cast<std::size_t>(name.place)].index()];
  }

  void start_message(Name name) {
    const TransferId id = tables_.by_place[name.direction()][static_cast<std::size_t>(name.place)];
    const bool forward = name.direction() == 0;
    const std::int64_t unit = forward ? costs_.value_unit : costs_.gradient_unit;
    const std::int64_t end = now_ + unit * tables_.hops[id.index()].units;
    const std::int64_t arrival = end + costs_.latency;
    sink_.message_starts(Message{id, Microbatch(name.microbatch()), forward ? Direction::forward : Direction::backward},
                         now_, end, arrival);
    if (unit > 0 && costs_.latency == 0) {
      events_.push(end, event(Event::Kind::left_and_arrived, name.number()));
      return;
    }
    if (unit > 0) events_.push(end, event(Event::Kind::left_wire, name.number()));
    events_.push(arrival, event(Event::Kind::arrived, name.number()));
  }

  void start_messages() {
    started_.clear();
    arbiter_.start_ready(started_);
    for (const NicArbiter::Started& started : started_)
      start_message(Name::of(started.order));
  }

  void handle(Event event) {
    const std::int64_t subject = event.subject >> 2;
    const auto kind = static_cast<typename Event::Kind>(event.subject & 3);
    if (kind == Event::Kind::computed) {
      on_computed(static_cast<std::size_t>(subject));
      return;
    }
    const Name name = Name::of(subject);
    const PlanTables::Hop& hop = hop_of(name);
    if (kind != Event::Kind::arrived) arbiter_.release(hop.link[name.direction()]);
    if (kind != Event::Kind::left_wire) on_arrived(hop, name);
  }

  void on_computed(std::size_t rank) {
    const Compute compute = head(rank);
    Rank& state = ranks_[rank];
    state.busy = false;
    ++state.index;
    state.in_second = !state.in_second && schedule_.ranks[rank][state.action].second.has_value();
    if (!state.in_second) ++state.action;
    const std::size_t microbatch = compute.microbatch.index();
    if (compute.op == Op::forward) {
      for (const TransferId id : tables_.after_chunk.of(compute.chunk.index()))
        submit_forward(id, microbatch);
    } else if (compute.op != Op::backward_weight) {
      for (const TransferId id : tables_.into_chunk.of(compute.chunk.index()))
        satisfy_backward_message(id, microbatch);
    }
    start_compute(rank);
  }

  void satisfy_backward_message(TransferId id, std::size_t microbatch) {
    if (needs_message_.count_down(microbatch, id.index()) > 0) return;
    const PlanTables::Hop& hop = tables_.hops[id.index()];
    submit(hop, {static_cast<std::int32_t>(2 * microbatch + 1), hop.place[1]});
  }

  void on_arrived(const PlanTables::Hop& hop, Name name) {
    const std::size_t microbatch = name.microbatch();
    if (name.direction() == 0) {
      needs_forward_.count_down(microbatch, hop.to_chunk.index());
      for (const TransferId id : tables_.passed_on.of(hop.id.index()))
        submit_forward(id, microbatch);
      start_compute(hop.to.index());
      return;
    }
    for (const ChunkId chunk : tables_.closers.of(hop.id.index()))
      needs_backward_.count_down(microbatch, chunk.index());
    for (const TransferId id : tables_.feeds.of(hop.id.index()))
      satisfy_backward_message(id, microbatch);
    start_compute(hop.from.index());
  }

  // --- Repetition ------------------------------------------------------------------------------------------------

  // All that decides what follows, but for the counts: times count from now.
  struct Present {
    struct Coming {
      std::int64_t after = 0;
      std::int64_t subject = 0;
    };
    struct Waiting {
      NicArbiter::Link link;
      MessageLane lane = MessageLane::urgent;
      std::int64_t since = 0;
      std::int64_t number = 0;
    };
    std::int64_t now = 0;
    std::vector<Rank> ranks;
    std::vector<Coming> coming;  // by time; of one instant in their order
    std::vector<Waiting> waiting;
  };

  // Looking back costs as much as some steps do, so it pays only after many.
  void find_stretches() {
    stretches_ = steady_stretches(schedule_.ranks.front());
    const std::size_t far = (ranks_.size() + 1) / 2;
    for (SteadyStretch& stretch : stretches_) {
      const std::size_t periods = (far + stretch.actions - 1) / stretch.actions;
      stretch.actions *= periods;
      stretch.microbatches *= static_cast<int>(periods);
    }
    std::erase_if(stretches_, [](const SteadyStretch& stretch) {
      return stretch.end - stretch.begin < 4 * stretch.actions || std::abs(stretch.microbatches) >= (1 << 28);
    });
    std::reverse(stretches_.begin(), stretches_.end());
  }

  Present present() const {
    Present here{.now = now_, .ranks = ranks_, .coming = {}, .waiting = {}};
    events_.for_each([&](std::int64_t time, const Event& event) {
      here.coming.push_back({time - now_, event.subject});
    });
    std::stable_sort(here.coming.begin(), here.coming.end(),
                     [](const auto& a, const auto& b) { return a.after < b.after; });
    arbiter_.for_each_waiting([&](NicArbiter::Link link, MessageLane lane, std::int64_t ready_at, std::int64_t number) {
      here.waiting.push_back({link, lane, now_ - ready_at, number});
    });
    std::sort(here.waiting.begin(), here.waiting.end(),
              [](const auto& a, const auto& b) { return a.number < b.number; });
    return here;
  }

  static std::int64_t later_number(int microbatches) { return std::int64_t{2} * microbatches << 32; }
  static bool is_of_message(std::int64_t subject) {
    return (subject & 3) != static_cast<std::int64_t>(Event::Kind::computed);
  }

  static bool same_but_later(const Present& here, const Present& before, const SteadyStretch& period) {
    const std::int64_t later = later_number(period.microbatches);
    const auto same_rank = [&](const Rank& a, const Rank& b) {
      return a.action == b.action + period.actions && a.in_second == b.in_second && a.busy == b.busy;
    };
    const auto same_event = [&](const auto& a, const auto& b) {
      return a.after == b.after && a.subject == b.subject + (is_of_message(b.subject) ? 4 * later : 0);
    };
    const auto same_message = [&](const auto& a, const auto& b) {
      return a.link == b.link && a.lane == b.lane && a.since == b.since && a.number == b.number + later;
    };
    return std::equal(here.ranks.begin(), here.ranks.end(), before.ranks.begin(), before.ranks.end(), same_rank) &&
           std::equal(here.coming.begin(), here.coming.end(), before.coming.begin(), before.coming.end(), same_event) &&
           std::equal(here.waiting.begin(), here.waiting.end(), before.waiting.begin(), before.waiting.end(),
                      same_message);
  }

  void look_back() {
    while (!stretches_.empty() && ranks_.front().action + stretches_.back().actions >= stretches_.back().end) {
      stretches_.pop_back();
      mark_.reset();
    }
    if (stretches_.empty()) return;
    const SteadyStretch& period = stretches_.back();
    const std::size_t next = mark_ ? mark_->ranks.front().action + period.actions : period.begin;
    if (ranks_.front().action < next) return;
    Present here = present();
    if (mark_ && same_but_later(here, *mark_, period)) {
      const int later = period.microbatches;
      const std::size_t times = repetitions_left(period);
      if (times > 0 && needs_forward_.repeats(later) && needs_backward_.repeats(later) &&
          needs_message_.repeats(later)) {
        repeat(here, times, period);
        stretches_.pop_back();
        mark_.reset();
        return;
      }
    }
    for (Countdown* needs : {&needs_forward_, &needs_backward_, &needs_message_})
      needs->mark();
    sink_.mark();
    mark_ = std::move(here);
  }

  // How often every rank's row goes on as since the mark; each also has an action after that which fits, because a rank
  // may have looked at it.
  std::size_t repetitions_left(const SteadyStretch& period) const {
    std::size_t times = num_rows() / static_cast<std::size_t>(std::abs(period.microbatches));
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::size_t action = ranks_[rank].action;
      const std::size_t end = steady_until(schedule_.ranks[rank], action, period.actions, period.microbatches);
      times = std::min(times, end == action ? 0 : (end - action - 1) / period.actions);
    }
    return times;
  }

  void repeat(const Present& here, std::size_t times, const SteadyStretch& period) {
    const auto count = static_cast<std::int64_t>(times);
    const std::int64_t duration = here.now - mark_->now;
    sink_.repeat(times, duration, period.microbatches);
    for (Countdown* needs : {&needs_forward_, &needs_backward_, &needs_message_})
      needs->repeat(times, period.microbatches);
    now_ += count * duration;
    const std::int64_t later = count * later_number(period.microbatches);
    arbiter_.postpone(count * duration, later);
    events_.restart(now_);
    for (const typename Present::Coming& coming : here.coming)
      events_.push(now_ + coming.after, {coming.subject + (is_of_message(coming.subject) ? 4 * later : 0)});
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].action += times * period.actions;
      ranks_[rank].index += static_cast<std::int32_t>(times) * (here.ranks[rank].index - mark_->ranks[rank].index);
    }
  }

  const Schedule& schedule_;
  const PlanCosts& costs_;
  PlanTables tables_;
  std::size_t num_chunks_;
  std::vector<PlanChunkCosts> chunks_;
  Sink& sink_;
  NicArbiter arbiter_;
  std::vector<Rank> ranks_;
  Countdown needs_forward_;  // [microbatch][chunk] arrivals still missing
  Countdown needs_backward_;
  Countdown needs_message_;  // [microbatch][transfer], backward
  EventQueue<Event> events_;
  std::vector<NicArbiter::Started> started_;
  std::int64_t now_ = 0;
  std::vector<SteadyStretch> stretches_;  // of rank 0's row, still to come
  std::optional<Present> mark_;
};

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/network.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "comm_groups.hpp"
#include "fair_share.hpp"
#include "network_hops.hpp"
#include "network_stuck.hpp"
#include "plumb/cache/event_queue.hpp"
#include "plumb/schedule/error.hpp"
#include "rank_speed.hpp"
#include "step_graph.hpp"

namespace plumb {
namespace {

constexpr SimTime max_step{std::int64_t{1} << 62};

// What will happen at a known time. Of a computation or flow whose end moved to an earlier time only the event with the
// newest stamp counts. All events of one instant commute, so ties need no rule.
struct Event {
  enum class Kind : std::uint8_t { computed, moved, met, arrived, launched };

  Event() = default;
  Event(Kind what, std::int32_t its_index, std::uint32_t its_stamp = 0)
      : index(its_index), stamp_and_kind(its_stamp << 3 | static_cast<std::uint32_t>(what)) {}
  Kind kind() const { return static_cast<Kind>(stamp_and_kind & 7); }
  std::uint32_t stamp() const { return stamp_and_kind >> 3; }

  std::int32_t index = 0;  // computed: rank; moved: flow; met, arrived: message; launched: group
  std::uint32_t stamp_and_kind = 0;
};

// The event that will end something whose end may move.
struct Expected {
  SimTime at{-1};  // -1: none
  std::uint32_t stamp = 0;
};

class NetworkEngine {
 public:
  NetworkEngine(const Program& program, const CostModel& costs, const NetworkModel& network)
      : program_(program),
        costs_(costs),
        network_(network),
        graph_(program),
        groups_(program, network.streams),
        hops_(program, costs, network),
        fair_(network.resources),
        speeds_(program.ranks.size(), network.protocol, network.shared_cores),
        states_(graph_.num_steps()),
        messages_(program.messages.size()),
        group_states_(groups_.num_groups()),
        computing_(program.ranks.size()),
        has_streams_(network.streams != CommStreams::unordered) {
    timeline_.messages.resize(program.messages.size());
    for (std::size_t m = 0; m < program.messages.size(); ++m) {
      const MessageId id(m);
      const auto units = static_cast<std::int32_t>(graph_.ends(id).num_segments);
      timeline_.messages[m].units = units;
      messages_[m].eager = bytes_of(id) <= network.protocol.eager_limit_bytes && network.protocol.eager_limit_bytes > 0;
    }
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      const RankProgram& rank = program.ranks[r];
      timeline_.ranks.push_back(
          {std::vector<ComputeTimes>(rank.compute.size()), std::vector<SimTime>(rank.comm.size())});
      prepare(RankId(r), rank);
    }
    for (std::int32_t g = 0; g < static_cast<std::int32_t>(groups_.num_groups()); ++g) {
      GroupState& group = group_states_[static_cast<std::size_t>(g)];
      group.unfinished = static_cast<std::int32_t>(groups_.members(g).size());
      group.pending = group.unfinished + (groups_.has_previous(g) ? 1 : 0);
    }
  }

  Timeline run() {
    start_what_waits_for_nothing();
    settle_instant();
    while (true) {
      const std::int64_t next = events_.advance();
      if (next == EventQueue<Event>::never) break;
      now_ = SimTime(next);
      for (Event event; events_.pop(event);) {
        happen(event);
        propagate();
      }
      settle_instant();
    }
    if (num_finished_ != graph_.num_steps()) report_stuck();
    return std::move(timeline_);
  }

  const NetworkStats& stats() const { return stats_; }

 private:
  struct StepState {
    static constexpr std::int32_t computes = -1;
    static constexpr std::int32_t local = -2;  // adds or zeroes

    SimTime inputs_computed{0};       // when the last computation behind what it waited for had ended
    std::int32_t pending = 0;         // events still to come
    std::int32_t subject = computes;  // or the end of a message
  };
  struct MessageState {
    bool eager : 1 = false;
    bool send_issued : 1 = false;
    bool receive_issued : 1 = false;
    bool arrived : 1 = false;
    bool sent : 1 = false;
    bool received : 1 = false;
  };
  struct GroupState {
    std::int32_t pending = 0;     // members not ready, the group before
    std::int32_t unfinished = 0;  // members not through
  };
  struct Computing {
    std::int32_t index = -1;
    Expected end;
  };
  struct FlowState {
    MessageId message;
    Expected end;
  };
  struct Finished {
    RankId rank;
    StepId step;
    SimTime computed;  // when the last computation behind this had ended
  };

  void prepare(RankId r, const RankProgram& rank) {
    StepState* state = states_.data() + graph_.compute(r, 0).index();
    for (std::size_t i = 0; i < rank.compute.size(); ++i, ++state) {
      state->pending = static_cast<std::int32_t>(rank.compute[i].waits.size()) + (i > 0 ? 1 : 0);
    }
    for (const CommStep& comm : rank.comm) {
      state->pending = static_cast<std::int32_t>(comm.waits.size());
      const bool sending = comm.kind == CommKind::send;
      state->subject = sending || comm.kind == CommKind::receive ? end_of(comm.message, sending) : StepState::local;
      ++state;
    }
  }

  void start_what_waits_for_nothing() {
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      const RankProgram& rank = program_.ranks[r];
      if (!rank.compute.empty() && rank.compute.front().waits.size() == 0)
        ready(RankId(r), graph_.compute(RankId(r), 0));
      for (std::size_t i = 0; i < rank.comm.size(); ++i) {
        if (rank.comm[i].waits.size() == 0) ready(RankId(r), graph_.comm(RankId(r), static_cast<std::int32_t>(i)));
      }
    }
    propagate();
  }

  void happen(const Event& event) {
    ++stats_.num_events;
    const auto index = static_cast<std::size_t>(event.index);
    switch (event.kind()) {
      case Event::Kind::computed:
        computed(RankId(index), event.stamp());
        break;
      case Event::Kind::moved:
        moved(FairShare::Flow(index), event.stamp());
        break;
      case Event::Kind::met:
        move(MessageId(index));
        break;
      case Event::Kind::arrived:
        arrived(MessageId(index));
        break;
      case Event::Kind::launched:
        launch(event.index);
        break;
    }
  }

  // At the end of an instant flows get their shares and ranks their speeds; an end that has moved gets its event. One
  // that has moved to a later time keeps the event it has, which then sees to it.
  void settle_instant() {
    if (fair_.unsettled()) {
      changes_.clear();
      fair_.share(now_, changes_);
      for (const FairShare::Change& change : changes_) {
        expect(flows_[change.flow.index()].end, change.finish, Event::Kind::moved, change.flow.value);
      }
      stats_.num_shares += static_cast<std::int64_t>(changes_.size());
    }
    speeds_.for_each_changed(now_, [&](RankId rank, SimTime end) {
      expect(computing_[rank.index()].end, end, Event::Kind::computed, rank.value);
    });
  }

  void expect(Expected& end, SimTime at, Event::Kind kind, std::int32_t index) {
    if (end.at >= SimTime(0) && end.at <= at) return;
    end.at = at;
    end.stamp = (end.stamp + 1) & ((1U << 29) - 1);
    push(at, {kind, index, end.stamp});
  }

  // Whether this event is the end; if the end has moved it is asked for again.
  bool is_end(Expected& end, SimTime finish, const Event& event) {
    if (event.stamp() != end.stamp || end.at < SimTime(0)) return false;
    end.at = SimTime(-1);
    if (finish > now_) {
      expect(end, finish, event.kind(), event.index);
      return false;
    }
    return true;
  }

  // Everything that follows at this very instant.
  void propagate() {
    while (true) {
      if (!issued_.empty()) {
        const std::int32_t group = issued_.back();
        issued_.pop_back();
        if (network_.protocol.launch > SimTime(0)) {
          push(now_ + network_.protocol.launch, {Event::Kind::launched, group});
        } else {
          launch(group);
        }
      } else if (!finished_.empty()) {
        const Finished done = finished_.back();
        finished_.pop_back();
        finish(done);
      } else {
        return;
      }
    }
  }

  void finish(const Finished& done) {
    ++num_finished_;
    timeline_.step = now_;
    const Wait local = graph_.local(done.rank, done.step);
    if (local.on == Wait::On::comm) {
      timeline_.ranks[done.rank.index()].comm_done[static_cast<std::size_t>(local.step)] = now_;
    }
    for (const StepId waiter : graph_.dependents(done.step)) {
      StepState& state = states_[waiter.index()];
      state.inputs_computed = std::max(state.inputs_computed, done.computed);
      if (--state.pending == 0) ready(done.rank, waiter);
    }
  }

  void ready(RankId rank, StepId step) {
    const StepState& state = states_[step.index()];
    if (state.subject == StepState::computes) {
      compute(rank, step);
    } else if (state.subject == StepState::local) {
      finished_.push_back({rank, step, state.inputs_computed});
    } else {
      MessageTimes& times = timeline_.messages[static_cast<std::size_t>(state.subject / 2)];
      (state.subject % 2 == 0 ? times.send_ready : times.posted) = now_;
      if (has_streams_) {
        pass(groups_.group_of(state.subject));
      } else {
        issue_alone(state.subject);
      }
    }
  }

  void pass(std::int32_t group) {
    if (--group_states_[static_cast<std::size_t>(group)].pending == 0) issued_.push_back(group);
  }

  void compute(RankId rank, StepId step) {
    const std::int32_t index = graph_.local(rank, step).step;
    const Compute& work = program_.ranks[rank.index()].compute[static_cast<std::size_t>(index)].compute;
    timeline_.ranks[rank.index()].compute[static_cast<std::size_t>(index)] = {
        now_, now_, now_ - states_[step.index()].inputs_computed};
    Computing& here = computing_[rank.index()];
    here.index = index;
    const SimTime end = speeds_.begin(rank, scaled(costs_.time_of(work), compute_scale(network_, rank)), now_);
    expect(here.end, end, Event::Kind::computed, rank.value);
    for (const StepId waiter : graph_.dependents(step)) {
      __builtin_prefetch(states_.data() + waiter.index());
    }
  }

  void computed(RankId rank, std::uint32_t stamp) {
    Computing& here = computing_[rank.index()];
    if (!is_end(here.end, speeds_.end(rank), {Event::Kind::computed, rank.value, stamp})) return;
    speeds_.finish(rank);
    timeline_.ranks[rank.index()].compute[static_cast<std::size_t>(here.index)].end = now_;
    finished_.push_back({rank, graph_.compute(rank, here.index), now_});
  }

  void issue_alone(std::int32_t end) {
    if (network_.protocol.launch > SimTime(0)) {
      push(now_ + network_.protocol.launch, {Event::Kind::launched, end});
    } else {
      issue(end);
    }
  }

  // Without streams every end is a group of its own.
  void launch(std::int32_t group) {
    if (!has_streams_) return issue(group);
    for (const std::int32_t end : groups_.members(group)) {
      issue(end);
    }
  }

  void issue(std::int32_t end) {
    const MessageId message(end / 2);
    MessageState& state = messages_[message.index()];
    const bool sending = end % 2 == 0;
    if (sending) {
      state.send_issued = true;
    } else {
      state.receive_issued = true;
    }
    speeds_.waits(rank_of(end));
    if (sending ? state.eager || state.receive_issued : state.send_issued && !state.eager) {
      begin(message);
    } else if (!sending && state.eager) {
      if (state.arrived) {
        speeds_.moves(rank_of(end));
        through(end);
      } else if (state.send_issued) {
        speeds_.moves(rank_of(end));
      }
    }
  }

  void begin(MessageId message) {
    const MessageState& state = messages_[message.index()];
    timeline_.messages[message.index()].start = now_;
    if (state.send_issued) speeds_.moves(hop_of(message).from);
    if (state.receive_issued) speeds_.moves(hop_of(message).to);
    const NetworkHop& hop = hop_of(message);
    if (is_rendezvous(message) && hop.latency > SimTime(0)) {
      push(now_ + hop.latency, {Event::Kind::met, message.value});
    } else {
      move(message);
    }
  }

  void move(MessageId message) {
    const NetworkHop& hop = hop_of(message);
    const std::int64_t bytes = bytes_of(message);
    if (bytes == 0 || hop.length == 0) return left(message);
    const FairShare::Flow flow = fair_.start(hop.resources(), bytes, now_);
    if (flow.index() == flows_.size()) flows_.emplace_back();
    FlowState& state = flows_[flow.index()];
    state.message = message;
    ++stats_.num_flows;
    const MessageEnds& ends = graph_.ends(message);
    expect_finish(ends.send);
    expect_finish(ends.receive);
  }

  // Asks for the memory of what will follow: it is far ahead in the rank's list.
  void expect_finish(StepId step) const {
    for (const StepId waiter : graph_.dependents(step)) {
      __builtin_prefetch(states_.data() + waiter.index());
    }
  }

  void moved(FairShare::Flow flow, std::uint32_t stamp) {
    FlowState& state = flows_[flow.index()];
    if (!is_end(state.end, fair_.finish(flow), {Event::Kind::moved, flow.value, stamp})) return;
    fair_.end(flow);
    left(state.message);
  }

  // All bytes have left the sender.
  void left(MessageId message) {
    const SimTime latency = is_rendezvous(message) ? SimTime(0) : hop_of(message).latency;
    through(end_of(message, true));
    if (latency > SimTime(0)) {
      push(now_ + latency, {Event::Kind::arrived, message.value});
    } else {
      arrived(message);
    }
  }

  void arrived(MessageId message) {
    MessageState& state = messages_[message.index()];
    state.arrived = true;
    if (state.receive_issued) through(end_of(message, false));
  }

  void through(std::int32_t end) {
    speeds_.done(rank_of(end));
    if (!has_streams_) return settle(end);
    const std::int32_t group = groups_.group_of(end);
    if (--group_states_[static_cast<std::size_t>(group)].unfinished > 0) return;
    for (const std::int32_t member : groups_.members(group)) {
      settle(member);
    }
    if (groups_.has_next(group)) pass(group + 1);
  }

  void settle(std::int32_t end) {
    const MessageId message(end / 2);
    MessageTimes& times = timeline_.messages[message.index()];
    const MessageEnds& ends = graph_.ends(message);
    const bool sending = end % 2 == 0;
    (sending ? times.sent : times.arrived) = now_;
    MessageState& state = messages_[message.index()];
    if (sending) {
      state.sent = true;
    } else {
      state.received = true;
    }
    SimTime computed = states_[ends.send.index()].inputs_computed;
    if (!state.eager || !sending) computed = std::max(computed, states_[ends.receive.index()].inputs_computed);
    finished_.push_back({rank_of(end), sending ? ends.send : ends.receive, computed});
  }

  const NetworkHop& hop_of(MessageId message) const { return hops_.of(program_.messages[message.index()]); }
  RankId rank_of(std::int32_t end) const {
    const NetworkHop& hop = hop_of(MessageId(end / 2));
    return end % 2 == 0 ? hop.from : hop.to;
  }
  std::int64_t bytes_of(MessageId message) const {
    return hop_of(message).unit_bytes * timeline_.messages[message.index()].units;
  }
  // Both ends hold a stream until it is through.
  bool is_rendezvous(MessageId message) const { return has_streams_ && !messages_[message.index()].eager; }

  void push(SimTime at, const Event& event) {
    if (at > max_step) {
      throw InputError("the step would take more than 53 days of virtual time: give smaller costs");
    }
    events_.push(at.count(), event);
  }

  [[noreturn]] void report_stuck() const {
    StuckNetwork stuck{program_, graph_, groups_, std::vector<bool>(states_.size()), {}, {}};
    for (std::size_t i = 0; i < states_.size(); ++i) {
      stuck.finished[i] = states_[i].pending == 0;
    }
    for (std::size_t m = 0; m < messages_.size(); ++m) {
      const MessageId message(m);
      const MessageEnds& ends = graph_.ends(message);
      stuck.finished[ends.send.index()] = messages_[m].sent;
      stuck.finished[ends.receive.index()] = messages_[m].received;
      stuck.eager.push_back(messages_[m].eager);
      stuck.bytes.push_back(bytes_of(message));
    }
    throw_stuck(stuck);
  }

  const Program& program_;
  const CostModel& costs_;
  const NetworkModel& network_;
  const StepGraph graph_;
  const CommGroups groups_;
  const NetworkHops hops_;
  FairShare fair_;
  RankSpeeds speeds_;
  std::vector<StepState> states_;         // [step]
  std::vector<MessageState> messages_;    // [message]
  std::vector<GroupState> group_states_;  // [group]
  std::vector<Computing> computing_;      // [rank]
  std::vector<FlowState> flows_;          // [flow]
  bool has_streams_;
  EventQueue<Event> events_;
  std::vector<Finished> finished_;
  std::vector<std::int32_t> issued_;  // groups that may begin now
  std::vector<FairShare::Change> changes_;
  SimTime now_{0};
  std::size_t num_finished_ = 0;
  NetworkStats stats_;
  Timeline timeline_;
};

}  // namespace

Timeline simulate_network(const Program& program, const CostModel& costs, const NetworkModel& network,
                          NetworkStats* stats) {
  costs.require_fits(program.layout.num_chunks());
  require_sound(network, program.layout.pp());
  NetworkEngine engine(program, costs, network);
  Timeline timeline = engine.run();
  if (stats != nullptr) *stats = engine.stats();
  return timeline;
}

}  // namespace plumb

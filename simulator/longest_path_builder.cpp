// SPDX-License-Identifier: Apache-2.0
#include "longest_path_builder.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "names.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/network.hpp"

namespace plumb {

LongestPathBuilder::LongestPathBuilder(LongestPath& path)
    : path_(path),
      program_(path.program_),
      graph_(program_),
      groups_(program_, path.network_.streams),
      has_streams_(path.network_.streams != CommStreams::unordered),
      states_(graph_.num_steps()),
      group_states_(groups_.num_groups()),
      issued_(program_.messages.size(), 0) {
  for (std::size_t m = 0; m < program_.messages.size(); ++m) {
    const MessageId id(m);
    if (static_cast<int>(graph_.ends(id).num_segments) != program_.units(id)) {
      throw InputError(fmt::format("message {}: {} has {} segments, its transfer {} units", m,
                                   message_name(program_, id, true), graph_.ends(id).num_segments, program_.units(id)));
    }
  }
  if (std::find(path.eager_.begin(), path.eager_.end(), true) != path.eager_.end()) {
    halves_.assign(2 * program_.messages.size(), none);
  }
  path_.node_of_.assign(graph_.num_steps(), none);
  path_.start_of_.assign(program_.messages.size(), none);
  path_.nodes_.reserve(graph_.num_steps());
  path_.edges_.reserve(2 * graph_.num_steps());
}

void LongestPathBuilder::prepare() {
  for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
    const RankProgram& rank = program_.ranks[r];
    StepState* state = states_.data() + graph_.compute(RankId(r), 0).index();
    for (std::size_t i = 0; i < rank.compute.size(); ++i, ++state) {
      state->pending = static_cast<std::int32_t>(rank.compute[i].waits.size()) + (i > 0 ? 1 : 0);
      if (state->pending == 0) queue_.push_back({RankId(r), graph_.compute(RankId(r), static_cast<std::int32_t>(i))});
    }
    for (std::size_t i = 0; i < rank.comm.size(); ++i, ++state) {
      const CommStep& comm = rank.comm[i];
      const bool sending = comm.kind == CommKind::send;
      state->pending = static_cast<std::int32_t>(comm.waits.size());
      state->subject = sending || comm.kind == CommKind::receive ? end_of(comm.message, sending) : -2;
      if (state->pending == 0) queue_.push_back({RankId(r), graph_.comm(RankId(r), static_cast<std::int32_t>(i))});
    }
  }
  for (std::int32_t g = 0; g < static_cast<std::int32_t>(groups_.num_groups()); ++g) {
    GroupState& group = group_states_[static_cast<std::size_t>(g)];
    group.unfinished = static_cast<std::int32_t>(groups_.members(g).size());
    group.pending = group.unfinished + (groups_.has_previous(g) ? 1 : 0);
  }
}

void LongestPathBuilder::run() {
  prepare();
  // First come, first served: near to the order in time, so that what a node needs was added not long before.
  while (next_ < queue_.size()) {
    const Ready now = queue_[next_++];
    ready(now.rank, now.step);
    while (!begun_.empty()) {
      const std::int32_t group = begun_.back();
      begun_.pop_back();
      begin_group(group);
    }
    if (next_ > 65536 && 2 * next_ > queue_.size()) {
      queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(next_));
      next_ = 0;
    }
  }
  if (num_finished_ == graph_.num_steps()) return;
  simulate_network(program_, CostModel(ActionTimes{}, Link{}, path_.bytes_), path_.network_);
}

void LongestPathBuilder::ready(RankId rank, StepId step) {
  const StepState& state = states_[step.index()];
  const Wait local = graph_.local(rank, step);
  const RankProgram& steps = program_.ranks[rank.index()];
  if (state.subject == -1) {
    const ComputeStep& compute = steps.compute[local.step];
    // Computations of the same rank are behind the one before.
    if (local.step > 0) path_.edges_.push_back(path_.node_of_[step.previous().index()]);
    for (const Wait& wait : steps.waits_of(compute.waits)) {
      if (wait.on == Wait::On::comm)
        path_.edges_.push_back(path_.node_of_[graph_.comm(rank, static_cast<std::int32_t>(wait.step)).index()]);
    }
    finish(rank, step, add(PathCosts::action(compute.compute.op, compute.compute.chunk)));
  } else if (state.subject == -2) {
    const std::size_t before = path_.edges_.size();
    take_waits(rank, steps.comm[local.step].waits);
    std::uint32_t node = 0;
    if (path_.edges_.size() == before + 1) {
      node = path_.edges_.back();
      path_.edges_.pop_back();
    } else {
      node = add(PathCosts::nothing);
    }
    finish(rank, step, node);
  } else if (has_streams_) {
    pass(groups_.group_of(state.subject));
  } else {
    issue(state.subject);
  }
}

void LongestPathBuilder::finish(RankId rank, StepId step, std::uint32_t node) {
  path_.node_of_[step.index()] = node;
  ++num_finished_;
  for (const StepId waiter : graph_.dependents(step)) {
    if (--states_[waiter.index()].pending == 0) queue_.push_back({rank, waiter});
  }
}

// Edges from what a step of this rank waits for; of computations only from the last.
void LongestPathBuilder::take_waits(RankId rank, Range waits) {
  std::int32_t last = -1;
  for (const Wait& wait : program_.ranks[rank.index()].waits_of(waits)) {
    const auto step = static_cast<std::int32_t>(wait.step);
    if (wait.on == Wait::On::compute) {
      last = std::max(last, step);
    } else {
      path_.edges_.push_back(path_.node_of_[graph_.comm(rank, step).index()]);
    }
  }
  if (last >= 0) path_.edges_.push_back(path_.node_of_[graph_.compute(rank, last).index()]);
}

// Edges from all that must be before this end of a message may begin.
void LongestPathBuilder::take_before(std::int32_t end) {
  if (!has_streams_) return take_waits(rank_of(end), waits_of(end));
  const std::int32_t group = groups_.group_of(end);
  const GroupState& state = group_states_[static_cast<std::size_t>(group)];
  if (state.begin != none) {
    path_.edges_.push_back(state.begin);
    return;
  }
  take_waits(rank_of(end), waits_of(end));
  if (groups_.has_previous(group)) path_.edges_.push_back(group_states_[static_cast<std::size_t>(group) - 1].end);
}

std::uint32_t LongestPathBuilder::add(std::uint32_t cost) {
  path_.nodes_.push_back({static_cast<std::uint32_t>(path_.edges_.size()), cost});
  return static_cast<std::uint32_t>(path_.nodes_.size()) - 1;
}

void LongestPathBuilder::pass(std::int32_t group) {
  if (--group_states_[static_cast<std::size_t>(group)].pending == 0) begun_.push_back(group);
}

void LongestPathBuilder::begin_group(std::int32_t group) {
  const auto members = groups_.members(group);
  if (members.size() > 1) {
    for (const std::int32_t end : members)
      take_waits(rank_of(end), waits_of(end));
    if (groups_.has_previous(group)) path_.edges_.push_back(group_states_[static_cast<std::size_t>(group) - 1].end);
    group_states_[static_cast<std::size_t>(group)].begin = add(PathCosts::nothing);
  }
  for (const std::int32_t end : members)
    issue(end);
}

void LongestPathBuilder::issue(std::int32_t end) {
  const MessageId message(end / 2);
  std::uint8_t& issued = issued_[message.index()];
  issued = static_cast<std::uint8_t>(issued | (end % 2 == 0 ? 1 : 2));
  if (is_eager(message)) {
    emit_eager(message, end % 2 == 0);
  } else if (issued == 3) {
    emit_message(message);
  }
}

void LongestPathBuilder::emit_message(MessageId message) {
  const std::int32_t send = end_of(message, true);
  const std::int32_t receive = end_of(message, false);
  take_before(send);
  take_before(receive);
  const std::uint32_t start = add(cost_of(message, has_streams_ ? PathCosts::rendezvous : PathCosts::move));
  path_.start_of_[message.index()] = start;
  std::uint32_t arrival = start;
  if (!has_streams_) {
    path_.edges_.push_back(start);
    arrival = add(cost_of(message, PathCosts::travel));
  }
  through(send, start);
  through(receive, arrival);
}

void LongestPathBuilder::emit_eager(MessageId message, bool sending) {
  const std::int32_t send = end_of(message, true);
  const std::int32_t receive = end_of(message, false);
  std::uint32_t& on_the_way = halves_[static_cast<std::size_t>(send)];
  std::uint32_t& awaited = halves_[static_cast<std::size_t>(receive)];
  take_before(sending ? send : receive);
  if (sending) {
    const std::uint32_t start = add(cost_of(message, PathCosts::move));
    path_.start_of_[message.index()] = start;
    path_.edges_.push_back(start);
    on_the_way = add(cost_of(message, PathCosts::travel));
    through(send, start);
  } else {
    awaited = add(PathCosts::launch);
  }
  if (on_the_way == none || awaited == none) return;
  path_.edges_.push_back(on_the_way);
  path_.edges_.push_back(awaited);
  through(receive, add(PathCosts::nothing));
}

void LongestPathBuilder::through(std::int32_t end, std::uint32_t node) {
  if (!has_streams_) return finish(rank_of(end), step_of(end), node);
  const std::int32_t group = groups_.group_of(end);
  GroupState& state = group_states_[static_cast<std::size_t>(group)];
  const auto members = groups_.members(group);
  if (members.size() > 1) path_.node_of_[step_of(end).index()] = node;
  if (--state.unfinished > 0) return;
  if (members.size() > 1) {
    for (const std::int32_t member : members)
      path_.edges_.push_back(path_.node_of_[step_of(member).index()]);
    node = add(PathCosts::nothing);
  }
  state.end = node;
  for (const std::int32_t member : members)
    finish(rank_of(member), step_of(member), node);
  if (groups_.has_next(group)) pass(group + 1);
}

bool LongestPathBuilder::is_eager(MessageId message) const {
  if (halves_.empty()) return false;
  const Message& which = program_.messages[message.index()];
  return path_.eager_[2 * which.transfer.index() + (which.direction == Direction::forward ? 0 : 1)];
}

RankId LongestPathBuilder::rank_of(std::int32_t end) const {
  const MessageId message(end / 2);
  return end % 2 == 0 ? program_.sender(message) : program_.receiver(message);
}

StepId LongestPathBuilder::step_of(std::int32_t end) const {
  const MessageEnds& ends = graph_.ends(MessageId(end / 2));
  return end % 2 == 0 ? ends.send : ends.receive;
}

Range LongestPathBuilder::waits_of(std::int32_t end) const {
  const RankId rank = rank_of(end);
  return program_.ranks[rank.index()].comm[graph_.local(rank, step_of(end)).step].waits;
}

std::uint32_t LongestPathBuilder::cost_of(MessageId message, PathCosts::Kind kind) const {
  const Message& which = program_.messages[message.index()];
  return PathCosts::hop(program_.layout.num_chunks(), which.transfer, which.direction, kind);
}

}  // namespace plumb

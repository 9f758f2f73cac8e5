// SPDX-License-Identifier: Apache-2.0
#include "comm_groups.hpp"

#include <array>

namespace plumb {
namespace {

constexpr int num_kinds = 4;

bool is_end(const CommStep& step) { return step.kind == CommKind::send || step.kind == CommKind::receive; }

// Activations out, activations in, gradients out, gradients in.
int kind_of(const Program& program, const CommStep& step) {
  const bool forward = program.messages[step.message.index()].direction == Direction::forward;
  return (forward ? 0 : 2) + (step.kind == CommKind::send ? 0 : 1);
}

}  // namespace

CommGroups::CommGroups(const Program& program, CommStreams streams) {
  first_member_.push_back(0);
  if (streams == CommStreams::unordered) return;
  const std::size_t num_ends = 2 * program.messages.size();
  group_of_.assign(num_ends, -1);
  members_.reserve(num_ends);
  streams_of_.reserve(num_ends);
  first_member_.reserve(num_ends + 1);
  for (const RankProgram& rank : program.ranks) {
    if (streams == CommStreams::batched) {
      add_batches(program, rank);
    } else {
      add_rank(program, rank, streams);
    }
  }
}

void CommGroups::open_group(std::int32_t stream) {
  streams_of_.push_back(stream);
  first_member_.push_back(static_cast<std::uint32_t>(members_.size()));
}

void CommGroups::add_member(std::int32_t end) {
  members_.push_back(end);
  first_member_.back() = static_cast<std::uint32_t>(members_.size());
  group_of_[static_cast<std::size_t>(end)] = static_cast<std::int32_t>(streams_of_.size()) - 1;
}

void CommGroups::add_rank(const Program& program, const RankProgram& rank, CommStreams streams) {
  const int num_here = streams == CommStreams::single ? 1 : num_kinds;
  for (int kind = 0; kind < num_here; ++kind) {
    for (const CommStep& step : rank.comm) {
      if (!is_end(step) || (num_here > 1 && kind_of(program, step) != kind)) continue;
      open_group(num_streams_);
      add_member(end_of(step.message, step.kind == CommKind::send));
    }
    ++num_streams_;
  }
}

void CommGroups::add_batches(const Program& program, const RankProgram& rank) {
  std::array<bool, num_kinds> held{};
  bool open = false;
  // Whether a step is a member of the open group or waits for one: then it carries the group's number.
  std::vector<std::int32_t> behind(rank.comm.size(), -1);
  for (const StepRef& ref : rank.order) {
    if (!ref.comm) {
      open = false;
      continue;
    }
    const CommStep& step = rank.comm[ref.index];
    const auto current = static_cast<std::int32_t>(streams_of_.size()) - 1;
    bool waits_for_group = false;
    for (const Wait& wait : rank.waits_of(step.waits)) {
      waits_for_group |= open && wait.on == Wait::On::comm && behind[wait.step] == current;
    }
    if (!is_end(step)) {
      if (waits_for_group) behind[ref.index] = current;
      continue;
    }
    const auto kind = static_cast<std::size_t>(kind_of(program, step));
    if (!open || waits_for_group || held[kind]) {
      open_group(num_streams_);
      held = {};
      open = true;
    }
    held[kind] = true;
    add_member(end_of(step.message, step.kind == CommKind::send));
    behind[ref.index] = static_cast<std::int32_t>(streams_of_.size()) - 1;
  }
  ++num_streams_;
}

}  // namespace plumb

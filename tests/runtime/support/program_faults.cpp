// SPDX-License-Identifier: Apache-2.0
#include "program_faults.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

namespace plumb::test {
namespace {

// Gives the step an operand list of its own.
void set_operands(RankProgram& rank, ComputeStep& step, const std::vector<Operand>& operands) {
  step.operands.begin = static_cast<std::uint32_t>(rank.operands.size());
  rank.operands.insert(rank.operands.end(), operands.begin(), operands.end());
  step.operands.end = static_cast<std::uint32_t>(rank.operands.size());
}

std::vector<Operand> operands_of(const RankProgram& rank, const ComputeStep& step) {
  const auto all = rank.operands_of(step.operands);
  return {all.begin(), all.end()};
}

// Changes the first contribution that is added to something already there.
template <class Change>
PlantedContribution change_contribution(Program& program, bool first_touch, const Change& change) {
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    RankProgram& rank = program.ranks[r];
    for (ComputeStep& step : rank.compute) {
      std::vector<Operand> operands = operands_of(rank, step);
      const auto found = std::find_if(operands.begin(), operands.end(), [&](const Operand& operand) {
        return operand.role == Role::grad_source && operand.first_touch == first_touch;
      });
      if (found == operands.end()) continue;
      const BlockId block = found->block;
      change(operands, found);
      set_operands(rank, step, operands);
      return {RankId(r), step.compute, block};
    }
  }
  throw std::logic_error("no contribution to change");
}

}  // namespace

PlantedContribution drop_contribution(Program& program, bool first_touch) {
  return change_contribution(program, first_touch,
                             [](std::vector<Operand>& operands, auto found) { operands.erase(found); });
}

PlantedContribution double_contribution(Program& program) {
  return change_contribution(program, false,
                             [](std::vector<Operand>& operands, auto found) { operands.insert(found, *found); });
}

RankId swap_first_messages(Program& program, RankId sender) {
  RankProgram& rank = program.ranks[sender.index()];
  CommStep* first = nullptr;
  for (CommStep& step : rank.comm) {
    if (step.kind != CommKind::send) continue;
    if (first == nullptr) {
      first = &step;
    } else if (step.peer == first->peer && step.lane == first->lane) {
      std::swap(*first, step);
      return step.peer;
    }
  }
  throw std::logic_error("no two messages to swap");
}

namespace {

// Nobody fills `slot` any more at this receive: the end of that life goes too.
void forget_life(RankProgram& rank, std::int32_t receive, Slot slot) {
  const StepRef start{true, receive};
  auto step = std::find(rank.order.begin(), rank.order.end(), start);
  for (; step != rank.order.end(); ++step) {
    const auto index = static_cast<std::size_t>(step->index);
    Range& range = step->comm ? rank.comm[index].releases : rank.compute[index].releases;
    const auto all = rank.releases_of(range);
    std::vector<Release> kept(all.begin(), all.end());
    std::erase_if(kept, [&](const Release& release) { return release.slot == slot; });
    if (kept.size() == all.size()) continue;
    range.begin = static_cast<std::uint32_t>(rank.releases.size());
    rank.releases.insert(rank.releases.end(), kept.begin(), kept.end());
    range.end = static_cast<std::uint32_t>(rank.releases.size());
    return;
  }
}

}  // namespace

void drop_block(Program& program) {
  Routing& routing = program.routing;
  for (std::size_t t = 0; t < routing.transfers.size(); ++t) {
    Transfer& transfer = routing.transfers[t];
    if (transfer.units() < 2 || transfer.holdings.empty()) continue;
    const HoldingId dropped = transfer.holdings.back();
    Holding& holding = routing.holdings[dropped.index()];
    if (!holding.children.empty()) continue;
    transfer.holdings.pop_back();
    std::erase(routing.holdings[holding.parent.index()].children, dropped);
    for (RankProgram& rank : program.ranks) {
      for (std::size_t i = 0; i < rank.comm.size(); ++i) {
        CommStep& step = rank.comm[i];
        if (program.messages[step.message.index()].transfer != TransferId(t)) continue;
        --step.segments.end;
        const Slot slot = rank.segments[step.segments.end];
        if (step.kind == CommKind::receive) forget_life(rank, static_cast<std::int32_t>(i), slot);
      }
    }
    RankProgram& reader_rank = program.ranks[holding.rank.index()];
    for (ComputeStep& step : reader_rank.compute) {
      if (std::find(holding.readers.begin(), holding.readers.end(), step.compute.chunk) == holding.readers.end())
        continue;
      std::vector<Operand> operands = operands_of(reader_rank, step);
      std::erase_if(operands, [&](const Operand& operand) {
        return operand.role == Role::source && operand.block == holding.block;
      });
      set_operands(reader_rank, step, operands);
    }
    holding.readers.clear();
    return;
  }
  throw std::logic_error("no block to drop");
}

}  // namespace plumb::test

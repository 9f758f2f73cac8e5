// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "parallel.hpp"
#include "verify.hpp"

namespace plumb {
namespace {

bool within(std::int32_t value, std::size_t count) { return value >= 0 && static_cast<std::size_t>(value) < count; }
bool within_or_none(std::int32_t value, std::size_t count) { return value == -1 || within(value, count); }

template <class Ids>
bool all_within(const Ids& ids, std::size_t count) {
  for (const auto id : ids) {
    if (!within(id.value, count)) return false;
  }
  return true;
}

template <class Lists>
bool lists_within(const Lists& lists, std::size_t size, std::size_t count) {
  if (lists.size() != size) return false;
  for (const auto& list : lists) {
    if (!all_within(list, count)) return false;
  }
  return true;
}

// The first thing wrong with the routing's indices, or an empty text.
std::string wrong_in_routing(const Program& program) {
  const Routing& routing = program.routing;
  const auto num_chunks = static_cast<std::size_t>(program.layout.num_chunks());
  const auto num_ranks = static_cast<std::size_t>(program.layout.pp());
  const auto num_blocks = static_cast<std::size_t>(program.depth.num_sources());
  const std::size_t num_holdings = routing.holdings.size();
  const std::size_t num_transfers = routing.transfers.size();
  for (std::size_t i = 0; i < num_holdings; ++i) {
    const Holding& holding = routing.holdings[i];
    const bool good = within(holding.block.value, num_blocks) && within(holding.rank.value, num_ranks) &&
                      within(holding.bringer.value, num_chunks) && within_or_none(holding.parent.value, num_holdings) &&
                      within_or_none(holding.transfer.value, num_transfers) &&
                      all_within(holding.children, num_holdings) && all_within(holding.readers, num_chunks);
    if (!good) return fmt::format("holding {} names something that does not exist", i);
  }
  for (std::size_t i = 0; i < num_transfers; ++i) {
    const Transfer& transfer = routing.transfers[i];
    const bool good = within(transfer.from.value, num_ranks) && within(transfer.to.value, num_ranks) &&
                      within(transfer.from_chunk.value, num_chunks) && within(transfer.to_chunk.value, num_chunks) &&
                      within_or_none(transfer.after_arrival.value, num_transfers) &&
                      within(transfer.after_chunk.value, num_chunks) && all_within(transfer.holdings, num_holdings);
    if (!good) return fmt::format("transfer {} names something that does not exist", i);
  }
  if (!lists_within(routing.into_chunk, num_chunks, num_transfers) ||
      !lists_within(routing.after_chunk, num_chunks, num_transfers)) {
    return fmt::format("the lists of transfers per chunk must be {} lists of numbers below {}", num_chunks,
                       num_transfers);
  }
  if (routing.root.size() != num_blocks || !all_within(routing.root, num_holdings) ||
      !lists_within(routing.holdings_of, num_blocks, num_holdings)) {
    return fmt::format("the roots and holdings per block must be {} entries of numbers below {}", num_blocks,
                       num_holdings);
  }
  return {};
}

std::string wrong_in_messages(const Program& program) {
  for (std::size_t i = 0; i < program.messages.size(); ++i) {
    const Message& message = program.messages[i];
    if (!within(message.transfer.value, program.routing.transfers.size()) ||
        !within(message.microbatch.value, static_cast<std::size_t>(program.layout.microbatches()))) {
      return fmt::format("message {} names transfer {} and microbatch {}, which do not exist", i,
                         message.transfer.value, message.microbatch.value);
    }
  }
  return {};
}

// The steps of one rank; each check returns what is wrong, or an empty text.
class RankChecker {
 public:
  RankChecker(const Program& program, const RankProgram& rank)
      : program_(program),
        rank_(rank),
        num_chunks_(static_cast<std::size_t>(program.layout.num_chunks())),
        num_microbatches_(static_cast<std::size_t>(program.layout.microbatches())) {}

  std::string wrong_in_sizes() const {
    const std::size_t mentioned = rank_.operands.size() + rank_.segments.size();
    for (const std::int32_t slots : {rank_.num_value_slots, rank_.num_gradient_slots}) {
      if (slots < 0 || static_cast<std::size_t>(slots) > mentioned) {
        return fmt::format("asks for {} slots, but its steps name slots {} times", slots, mentioned);
      }
    }
    // The order merges the two lists.
    std::int32_t next_compute = 0;
    std::int32_t next_comm = 0;
    for (const StepRef& step : rank_.order) {
      std::int32_t& next = step.comm ? next_comm : next_compute;
      if (step.index != next++) return fmt::format("the common order is no merge of the rank's two lists");
    }
    if (static_cast<std::size_t>(next_compute) != rank_.compute.size() ||
        static_cast<std::size_t>(next_comm) != rank_.comm.size()) {
      return fmt::format("the common order holds {} computations of {} and {} communication steps of {}", next_compute,
                         rank_.compute.size(), next_comm, rank_.comm.size());
    }
    return {};
  }

  // Whether there is anything wrong with a step; what it is costs more to say.
  bool sound(const ComputeStep& step) const {
    if (!within(step.compute.chunk.value, num_chunks_) || !within(step.compute.microbatch.value, num_microbatches_) ||
        !inside(step.operands, rank_.operands.size())) {
      return false;
    }
    return in_pools(step.waits, step.releases);
  }

  bool sound(const CommStep& step) const {
    const bool moves = step.kind == CommKind::send || step.kind == CommKind::receive;
    if (!within(step.message.value, program_.messages.size()) || !inside(step.segments, rank_.segments.size()) ||
        !(moves ? within(step.peer.value, program_.ranks.size())
                : within(step.holding.value, program_.routing.holdings.size()))) {
      return false;
    }
    if (!moves && step.segments.size() != num_segments(step.kind)) return false;
    if (step.first_touch && step.kind != CommKind::add) return false;
    return in_pools(step.waits, step.releases);
  }

  // Whether what the steps name exists, whichever step names it.
  bool pools_sound() const {
    const auto all = [](const auto& pool, auto&& good) {
      bool sound = true;
      for (const auto& item : pool)
        sound &= good(item);
      return sound;
    };
    return all(rank_.operands, [&](const Operand& operand) { return slot_exists(slot_of(operand)); }) &&
           all(rank_.segments, [&](const Slot& slot) { return slot_exists(slot); }) &&
           all(rank_.waits, [&](const Wait& wait) { return wait_exists(wait); }) &&
           all(rank_.releases, [&](const Release& release) {
             return slot_exists(release.slot) && inside(release.waits, rank_.waits.size());
           });
  }

  // The first half of a pair is a forward, and the next computation its backward half: not that forward's own.
  bool pairs_well(std::size_t index) const {
    const ComputeStep& step = rank_.compute[index];
    if (!step.overlaps_next) return true;
    if (index + 1 == rank_.compute.size() || step.compute.op != Op::forward) return false;
    const ComputeStep& next = rank_.compute[index + 1];
    if (next.compute.chunk == step.compute.chunk && next.compute.microbatch == step.compute.microbatch) return false;
    return !next.overlaps_next && (next.compute.op == Op::backward || next.compute.op == Op::backward_input);
  }

  std::string wrong_in(const ComputeStep& step) const {
    if (!within(step.compute.chunk.value, num_chunks_) || !within(step.compute.microbatch.value, num_microbatches_)) {
      return "the chunk or the microbatch does not exist";
    }
    if (!inside(step.operands, rank_.operands.size())) return "its operands lie outside the pool";
    for (const Operand& operand : rank_.operands_of(step.operands)) {
      if (!slot_exists(slot_of(operand))) {
        return fmt::format("slot {} does not exist", operand.slot);
      }
    }
    return wrong_in_waits_and_releases(step.waits, step.releases);
  }

  std::string wrong_in(const CommStep& step) const {
    if (!within(step.message.value, program_.messages.size())) return "its message does not exist";
    const bool moves = step.kind == CommKind::send || step.kind == CommKind::receive;
    if (moves && !within(step.peer.value, program_.ranks.size())) return "its peer does not exist";
    if (!moves && !within(step.holding.value, program_.routing.holdings.size())) return "its holding does not exist";
    if (!inside(step.segments, rank_.segments.size())) return "its segments lie outside the pool";
    if (!moves && step.segments.size() != num_segments(step.kind)) {
      return fmt::format("has {} segments, must have {}", step.segments.size(), num_segments(step.kind));
    }
    if (step.first_touch && step.kind != CommKind::add) return "touches something first, which only an add does";
    for (const Slot& slot : rank_.segments_of(step.segments)) {
      if (!slot_exists(slot)) return fmt::format("slot {} does not exist", slot.index);
    }
    return wrong_in_waits_and_releases(step.waits, step.releases);
  }

 private:
  static std::uint32_t num_segments(CommKind kind) { return kind == CommKind::add ? 2 : 1; }
  static bool inside(Range range, std::size_t size) { return range.begin <= range.end && range.end <= size; }

  bool slot_exists(const Slot& slot) const {
    const std::int32_t slots = slot.slot_class == SlotClass::value ? rank_.num_value_slots : rank_.num_gradient_slots;
    return slot.index < static_cast<std::uint32_t>(slots);
  }

  bool in_pools(Range waits, Range releases) const {
    return inside(waits, rank_.waits.size()) && inside(releases, rank_.releases.size());
  }

  bool wait_exists(Wait wait) const {
    return static_cast<std::size_t>(wait.step) <
           (wait.on == Wait::On::compute ? rank_.compute.size() : rank_.comm.size());
  }

  bool waits_exist(Range range) const {
    if (!inside(range, rank_.waits.size())) return false;
    const auto waits = rank_.waits_of(range);
    return std::all_of(waits.begin(), waits.end(), [&](const Wait& wait) { return wait_exists(wait); });
  }

  std::string wrong_in_waits_and_releases(Range waits, Range releases) const {
    if (!waits_exist(waits)) return "waits for a step that does not exist";
    if (!inside(releases, rank_.releases.size())) return "its releases lie outside the pool";
    for (const Release& release : rank_.releases_of(releases)) {
      if (!slot_exists(release.slot)) return fmt::format("releases slot {}, which does not exist", release.slot.index);
      if (!waits_exist(release.waits)) return "a release waits for a step that does not exist";
    }
    return {};
  }

  const Program& program_;
  const RankProgram& rank_;
  std::size_t num_chunks_;
  std::size_t num_microbatches_;
};

void add_if(FaultList& faults, RankId rank, std::string why, std::string_view what, std::size_t index) {
  if (why.empty()) return;
  faults.add(rank, static_cast<std::int32_t>(index), fmt::format("{} {}", what, index), std::move(why));
}

void verify_rank_structure(const Program& program, RankId rank, FaultList& faults) {
  const RankProgram& steps = program.ranks[rank.index()];
  const RankChecker checker(program, steps);
  add_if(faults, rank, checker.wrong_in_sizes(), "rank", rank.index());
  const bool pools_sound = checker.pools_sound();  // if not, some step may say which
  for (std::size_t i = 0; i < steps.compute.size(); ++i) {
    if (!pools_sound || !checker.sound(steps.compute[i])) {
      add_if(faults, rank, checker.wrong_in(steps.compute[i]), "compute step", i);
    }
    if (!checker.pairs_well(i)) {
      add_if(faults, rank,
             "overlaps the next computation, but only an F overlaps, and only another one's B or I behind it",
             "compute step", i);
    }
  }
  for (std::size_t i = 0; i < steps.comm.size(); ++i) {
    if (!pools_sound || !checker.sound(steps.comm[i])) {
      add_if(faults, rank, checker.wrong_in(steps.comm[i]), "communication step", i);
    }
  }
}

}  // namespace

void verify_structure(const Program& program, FaultList& faults) {
  if (program.depth.num_chunks() != program.layout.num_chunks() ||
      program.ranks.size() != static_cast<std::size_t>(program.layout.pp())) {
    faults.add(
        RankId{}, 0, "program",
        fmt::format("has {} chunks and {} ranks in a layout of {} chunks on {} ranks", program.depth.num_chunks(),
                    program.ranks.size(), program.layout.num_chunks(), program.layout.pp()));
    return;
  }
  add_if(faults, RankId{}, wrong_in_routing(program), "routing", 0);
  add_if(faults, RankId{}, wrong_in_messages(program), "messages", 0);
  const std::size_t num_ranks = program.ranks.size();
  std::vector<FaultList> of_rank(num_ranks, faults.as_empty());
  for_each_in_parallel(
      num_ranks, threads_worth_it(program.messages.size(), num_ranks, 0),
      [&](std::size_t rank, std::size_t) { verify_rank_structure(program, RankId(rank), of_rank[rank]); });
  for (FaultList& found : of_rank)
    faults.join(std::move(found));
}

}  // namespace plumb

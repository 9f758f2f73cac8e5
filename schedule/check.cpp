// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/check.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "for_each_compute.hpp"
#include "numbering.hpp"
#include "order.hpp"
#include "plumb/schedule/error.hpp"
#include "quote.hpp"

namespace plumb {
namespace {

// The table of (chunk, microbatch) takes memory by the layout, not by the schedule: a few actions with a huge number
// among them must not allocate it.
constexpr std::size_t max_unfilled = 4096;

std::uint8_t bit(Op op) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(op)); }

constexpr std::uint8_t any_backward = 0b1110;

class Completeness {
 public:
  Completeness(const Schedule& schedule, std::size_t max_faults)
      : schedule_(schedule), layout_(schedule.layout), max_faults_(std::max<std::size_t>(max_faults, 1)) {}

  std::vector<ScheduleFault> run() {
    check_rows();
    std::size_t num_computes = 0;
    for (const auto& actions : schedule_.ranks) {
      for (const Action& action : actions)
        num_computes += action.second ? 2U : 1U;
    }
    const auto table =
        static_cast<std::size_t>(layout_.num_chunks()) * static_cast<std::size_t>(layout_.microbatches());
    if (table > 2 * num_computes + max_unfilled) {
      add(RankId(), 0, "",
          fmt::format("the layout needs {} forwards, the schedule holds {} computations in all", table, num_computes));
      return std::move(faults_);
    }
    seen_.assign(table, {});
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      for (std::size_t column = 0; column < schedule_.ranks[rank].size(); ++column) {
        const Action& action = schedule_.ranks[rank][column];
        for_each_compute(action, [&](const Compute& compute) { check_compute(RankId(rank), column, compute); });
        check_pair(RankId(rank), column, action);
        if (full()) return std::move(faults_);
      }
    }
    check_direction();
    check_missing();
    return std::move(faults_);
  }

 private:
  // What has been met of one (chunk, microbatch) so far, as bits of Op; `here` only on the rank that owns the chunk.
  struct Seen {
    std::uint8_t anywhere = 0;
    std::uint8_t here = 0;
  };

  bool full() const { return faults_.size() >= max_faults_; }

  void add(RankId rank, std::size_t column, std::string token, std::string why) {
    if (!full()) faults_.push_back({rank, column, std::move(token), std::move(why)});
  }

  void check_rows() {
    const auto pp = static_cast<std::size_t>(layout_.pp());
    if (schedule_.ranks.size() != pp) {
      add(RankId(std::min(pp, schedule_.ranks.size())), 0, "",
          fmt::format("the schedule has {} rows, the layout {} ranks", schedule_.ranks.size(), pp));
    }
    for (std::size_t rank = 0; rank < std::min(pp, schedule_.ranks.size()); ++rank) {
      if (schedule_.ranks[rank].empty()) add(RankId(rank), 0, "", "this rank runs nothing");
    }
  }

  bool has_actions(RankId rank) const {
    return rank.index() < schedule_.ranks.size() && !schedule_.ranks[rank.index()].empty();
  }

  Seen& seen(ChunkId chunk, Microbatch microbatch) {
    return seen_[chunk.index() * static_cast<std::size_t>(layout_.microbatches()) + microbatch.index()];
  }

  void check_compute(RankId rank, std::size_t column, const Compute& compute) {
    const auto fault = [&](std::string why) { add(rank, column, to_string(compute), std::move(why)); };
    if (compute.chunk.value < 0 || compute.chunk.value >= layout_.num_chunks()) {
      return fault(fmt::format("there is no chunk {}, only 0..{}", compute.chunk.value, layout_.num_chunks() - 1));
    }
    if (compute.microbatch.value < 0 || compute.microbatch.value >= layout_.microbatches()) {
      return fault(
          fmt::format("there is no microbatch {}, only 0..{}", compute.microbatch.value, layout_.microbatches() - 1));
    }
    Seen& before = seen(compute.chunk, compute.microbatch);
    const RankId owner = layout_.rank_of(compute.chunk);
    if (owner != rank) {
      fault(fmt::format("chunk {} belongs to rank {} in placement {}", compute.chunk.value, owner.value,
                        to_string(layout_.placement())));
    } else {
      check_order(compute, before.here, fault);
      before.here |= bit(compute.op);
    }
    if (before.anywhere & bit(compute.op)) {
      fault("runs a second time");
    } else if ((before.anywhere & mixed_with(compute.op)) != 0) {
      fault("a full backward B and a split one (I, W) of the same microbatch do not go together");
    }
    before.anywhere |= bit(compute.op);
    has_backward_ = has_backward_ || compute.op != Op::forward;
  }

  void check_pair(RankId rank, std::size_t column, const Action& action) {
    if (!action.second || action.first.op != Op::forward) return;
    if (action.first.chunk != action.second->chunk || action.first.microbatch != action.second->microbatch) return;
    add(rank, column, to_string(action),
        "a pair cannot hold a forward and its own backward: its halves start together, and this one needs the other");
  }

  // Reported when the later of the two is met: it stands after what needs it.
  template <class Fault>
  static void check_order(const Compute& compute, std::uint8_t before, const Fault& fault) {
    if (before & bit(compute.op)) return;  // a duplicate is its own fault
    if (compute.op == Op::forward && (before & (bit(Op::backward) | bit(Op::backward_input))) != 0) {
      fault("this forward stands after its own backward");
    }
    if (compute.op == Op::backward_input && (before & bit(Op::backward_weight)) != 0) {
      fault("this input gradient (I) stands after its own weight gradient (W)");
    }
  }

  static std::uint8_t mixed_with(Op op) {
    if (op == Op::backward) return static_cast<std::uint8_t>(bit(Op::backward_input) | bit(Op::backward_weight));
    return op == Op::forward ? std::uint8_t{0} : bit(Op::backward);
  }

  void check_direction() {
    if (has_backward_ == !schedule_.forward_only) return;
    add(RankId(), 0, "",
        has_backward_ ? "the schedule is marked forward-only but holds backwards"
                      : "the schedule holds no backward but is not marked forward-only");
  }

  bool is_absent(Microbatch m) {
    for (ChunkId chunk; chunk.value < layout_.num_chunks(); chunk = chunk.next()) {
      if (seen(chunk, m).anywhere != 0) return false;
    }
    return true;
  }

  // One mistyped number makes the table longer, so microbatches without any action are one fault, where the first
  // number beyond them stands.
  void check_absent() {
    absent_.assign(static_cast<std::size_t>(layout_.microbatches()), false);
    for (Microbatch m; m.value < layout_.microbatches(); m = m.next())
      absent_[m.index()] = is_absent(m);
    if (std::find(absent_.begin(), absent_.end(), false) == absent_.end()) return;  // said for every rank
    for (std::size_t begin = 0; begin < absent_.size() && !full(); ++begin) {
      if (!absent_[begin]) continue;
      const auto end = static_cast<std::size_t>(
          std::find(absent_.begin() + static_cast<std::ptrdiff_t>(begin), absent_.end(), false) - absent_.begin());
      const std::string which = end - begin == 1 ? fmt::format("microbatch {} has", begin)
                                                 : fmt::format("microbatches {} to {} have", begin, end - 1);
      add_absent(static_cast<int>(end), which + " no action at all");
      begin = end;
    }
  }

  void add_absent(int beyond, const std::string& why) {
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      for (std::size_t column = 0; column < schedule_.ranks[rank].size(); ++column) {
        const Action& action = schedule_.ranks[rank][column];
        if (action.first.microbatch.value >= beyond || (action.second && action.second->microbatch.value >= beyond)) {
          return add(RankId(rank), column, to_string(action), why + ", but here is a higher one");
        }
      }
    }
    add(RankId(), 0, "", why);
  }

  void check_missing() {
    check_absent();
    for (int c = 0; c < layout_.num_chunks(); ++c) {
      const ChunkId chunk(c);
      if (!has_actions(layout_.rank_of(chunk))) continue;  // said once, for the whole rank
      for (int m = 0; m < layout_.microbatches() && !full(); ++m) {
        if (absent_[static_cast<std::size_t>(m)]) continue;
        const std::uint8_t have = seen(chunk, Microbatch(m)).anywhere;
        if (!(have & bit(Op::forward))) add_missing(Op::forward, chunk, Microbatch(m));
        if (!has_backward_ || (have & bit(Op::backward))) continue;
        if (!(have & any_backward)) {
          add_missing(Op::backward, chunk, Microbatch(m));
        } else if (!(have & bit(Op::backward_input))) {
          add_missing(Op::backward_input, chunk, Microbatch(m));
        } else if (!(have & bit(Op::backward_weight))) {
          add_missing(Op::backward_weight, chunk, Microbatch(m));
        }
      }
    }
  }

  void add_missing(Op op, ChunkId chunk, Microbatch microbatch) {
    const RankId rank = layout_.rank_of(chunk);
    add(rank, schedule_.ranks[rank.index()].size(), to_string(Compute{op, chunk, microbatch}), "is missing");
  }

  const Schedule& schedule_;
  const Layout& layout_;
  std::size_t max_faults_;
  std::vector<ScheduleFault> faults_;
  std::vector<Seen> seen_;
  bool has_backward_ = false;
  std::vector<bool> absent_;  // [microbatch] without any action
};

std::string describe(const ScheduleFault& fault) {
  if (fault.token.empty()) return fmt::format("rank {}: {}", fault.rank.value, fault.why);
  return fmt::format("rank {}, action {} ({}): {}", fault.rank.value, fault.column, fault.token, fault.why);
}

}  // namespace

ScheduleCheck check_schedule(const Schedule& schedule, std::size_t max_faults) {
  ScheduleCheck check;
  check.faults = Completeness(schedule, max_faults).run();
  if (check.faults.empty()) {
    check.cycle = find_cycle(schedule);
    return check;
  }
  // With something missing or misplaced, an order that cannot run is no news.
  std::vector<ScheduleFault> misnumbered = find_misnumbered(schedule);
  if (misnumbered.empty()) return check;
  misnumbered.resize(std::min(misnumbered.size(), std::max<std::size_t>(max_faults, 1)));
  check.faults = std::move(misnumbered);
  return check;
}

void require_legal(const Schedule& schedule) {
  const ScheduleCheck check = check_schedule(schedule, 1);
  if (!check.faults.empty()) {
    throw InputError(fmt::format("schedule {}: {}", quoted(schedule.name), describe(check.faults.front())));
  }
  if (check.cycle.empty()) return;
  constexpr std::size_t max_shown = 6;
  std::string text;
  for (std::size_t i = 0; i < std::min(check.cycle.size(), max_shown); ++i) {
    text += (i == 0 ? "" : "; ") + describe(check.cycle[i]);
  }
  if (check.cycle.size() > max_shown) text += fmt::format("; and {} more", check.cycle.size() - max_shown);
  throw InputError(
      fmt::format("schedule {} cannot run, its actions wait for each other: {}", quoted(schedule.name), text));
}

}  // namespace plumb

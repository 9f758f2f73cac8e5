// SPDX-License-Identifier: Apache-2.0
#include "numbering.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace plumb {
namespace {

enum Kind : std::size_t { forwards, backwards, weights, num_kinds };

Kind kind_of(Op op) {
  if (op == Op::forward) return forwards;
  return op == Op::backward_weight ? weights : backwards;
}

// The microbatches of one kind of computation in one chunk.
struct Numbers {
  std::int32_t count = 0;
  std::int32_t first = std::numeric_limits<std::int32_t>::max();
  std::int32_t last = -1;
  RankId rank;
  std::size_t column = 0;  // of the first of them that stands in the row
  Compute compute;
};

class Numbering {
 public:
  explicit Numbering(const Schedule& schedule) : schedule_(schedule) {
    const auto num_chunks = static_cast<std::size_t>(schedule.layout.num_chunks());
    numbers_.resize(num_kinds * num_chunks);
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      for (std::size_t column = 0; column < schedule.ranks[rank].size(); ++column) {
        const Action& action = schedule.ranks[rank][column];
        add(RankId(rank), column, action.first);
        if (action.second) add(RankId(rank), column, *action.second);
      }
    }
  }

  // Every chunk runs as many forwards and, if any, backwards as the others, without a gap, and some start above 0; and
  // these are all microbatches of the layout, or would be had the largest number not counted. (The W are fewer where
  // only some backwards are split.)
  bool is_suspect() const {
    if (!in_range_ || numbers_.empty()) return false;
    const std::int32_t count = numbers_.front().count;
    bool shifted = false;
    std::int32_t last = 0;
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      const Numbers& n = numbers_[i];
      if (n.count == 0 && i % num_kinds != forwards) continue;
      if (i % num_kinds == weights && n.count != count) continue;
      if (n.count != count || std::int64_t{n.last} - n.first != count - 1) return false;
      shifted = shifted || n.first > 0;
      last = std::max(last, n.last);
    }
    const int microbatches = schedule_.layout.microbatches();
    return shifted && (count == microbatches || (count < microbatches && last == microbatches - 1));
  }

  Schedule renumbered() const {
    Schedule right = schedule_;
    right.layout = schedule_.layout.with_microbatches(numbers_.front().count);
    const auto shift = [&](Compute& compute) { compute.microbatch.value -= shift_of(compute); };
    for (std::vector<Action>& actions : right.ranks) {
      for (Action& action : actions) {
        shift(action.first);
        if (action.second) shift(*action.second);
      }
    }
    return right;
  }

  std::vector<ScheduleFault> faults() const {
    std::vector<ScheduleFault> faults;
    bool all = true;
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      if (is_shifted(numbers_[i])) {
        faults.push_back(fault(numbers_[i], static_cast<Kind>(i % num_kinds)));
        all = all && numbers_[i].first == numbers_.front().first;
      } else {
        all = all && numbers_[i].count != numbers_.front().count;
      }
    }
    if (!all) return faults;
    const Numbers& n = numbers_.front();
    return {{n.rank, n.column, to_string(n.compute),
             fmt::format("all microbatches are numbered {}, they count from 0", range(n.first, n.count))}};
  }

 private:
  void add(RankId rank, std::size_t column, const Compute& compute) {
    if (compute.chunk.value < 0 || compute.chunk.value >= schedule_.layout.num_chunks()) {
      in_range_ = false;
      return;
    }
    Numbers& n = numbers_[compute.chunk.index() * num_kinds + kind_of(compute.op)];
    if (n.count++ == 0) {
      n.rank = rank;
      n.column = column;
      n.compute = compute;
    }
    n.first = std::min(n.first, compute.microbatch.value);
    n.last = std::max(n.last, compute.microbatch.value);
  }

  const Numbers& of(ChunkId chunk, Kind kind) const { return numbers_[chunk.index() * num_kinds + kind]; }

  // A few W among full backwards are numbered like these.
  std::int32_t shift_of(const Compute& compute) const {
    const Numbers& own = of(compute.chunk, kind_of(compute.op));
    const Numbers& n = own.count == numbers_.front().count ? own : of(compute.chunk, backwards);
    return is_shifted(n) ? n.first : 0;
  }

  bool is_shifted(const Numbers& n) const { return n.count == numbers_.front().count && n.first > 0; }

  static std::string range(std::int32_t first, std::int32_t count) {
    return count == 1 ? fmt::format("{}", first) : fmt::format("{}..{}", first, first + count - 1);
  }

  ScheduleFault fault(const Numbers& n, Kind kind) const {
    constexpr std::array<std::string_view, num_kinds> names = {"forwards", "backwards", "weight gradients"};
    std::string why = fmt::format("the {} of chunk {} are numbered {} instead of {}", names[kind],
                                  n.compute.chunk.value, range(n.first, n.count), range(0, n.count));
    const Layout& layout = schedule_.layout;
    if (kind == forwards && n.first == 1 && layout.vp() == 1 && n.compute.chunk.value == layout.pp() - 1) {
      why +=
          ": torch's published pipeline_order of 1F1B is off by one like that on its last rank (what torch runs is "
          "not)";
    }
    return {n.rank, n.column, to_string(n.compute), std::move(why)};
  }

  const Schedule& schedule_;
  std::vector<Numbers> numbers_;  // [chunk][kind]
  bool in_range_ = true;
};

}  // namespace

std::vector<ScheduleFault> find_misnumbered(const Schedule& schedule) {
  const Numbering numbering(schedule);
  if (!numbering.is_suspect()) return {};
  // Numbered from 0 it is no suspect any more, so this does not come back here.
  if (!check_schedule(numbering.renumbered(), 1).ok()) return {};
  return numbering.faults();
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// ZB-V and DualPipeV. Both are phases of a short pattern repeated. `a` is a rank's chunk on the way down, `b` the one
// on the way back; each operation of each chunk takes its microbatches in ascending order, so a counter stands for
// them.
#include <algorithm>
#include <array>
#include <initializer_list>

#include "building.hpp"
#include "plumb/schedule/generators.hpp"

namespace plumb {
namespace {

enum Side : std::size_t { a, b };

struct Part {
  Op op;
  Side side;
};

constexpr Part Fa{Op::forward, a}, Ia{Op::backward_input, a}, Wa{Op::backward_weight, a};
constexpr Part Fb{Op::forward, b}, Ib{Op::backward_input, b}, Wb{Op::backward_weight, b};
constexpr Part Ba{Op::backward, a}, Bb{Op::backward, b};

// One rank of ZB-V. The order is laid out for at least 2P-1 microbatches; what is above M is left out.
class ZeroBubbleRank {
 public:
  ZeroBubbleRank(const Layout& layout, RankId rank, bool forward_only)
      : chunks_{layout.chunk_of(rank, VirtualStage(0)), layout.chunk_of(rank, VirtualStage(1))},
        microbatches_(layout.microbatches()),
        forward_only_(forward_only) {
    actions_.reserve((forward_only ? 2U : 6U) * static_cast<std::size_t>(microbatches_));
  }

  std::vector<Action> make(int pp, int r) && {
    const int n = std::max(2 * pp - 1, microbatches_);
    repeat(2 * (pp - r) - 1, {Fa});
    repeat(r, {Fb, Fa});
    repeat(pp - r, {Fb, Ib, Wb});
    // Until every forward of both chunks is out: a has r fewer to go than b.
    repeat(n - (2 * pp - r - 1), {Fa, Ia, Wa, Fb, Ib, Wb});
    repeat(pp - r - 1, {Ia, Wa, Fb, Ib, Wb});
    repeat(r, {Ia, Ib});
    repeat(pp - r, {Ia, Wa});
    repeat(r, {Wb});
    repeat(r, {Wa});
    return std::move(actions_);
  }

 private:
  void repeat(int times, std::initializer_list<Part> parts) {
    for (; times > 0; --times) {
      bool more = false;
      for (const Part part : parts)
        more = add(part) || more;
      if (!more) return;  // all of them are above M and stay so
    }
  }

  bool add(Part part) {
    int& next = next_[static_cast<std::size_t>(part.op)][part.side];
    if (next >= microbatches_) return false;
    const Microbatch microbatch(next++);
    if (!forward_only_ || part.op == Op::forward) actions_.push_back(single(part.op, chunks_[part.side], microbatch));
    return true;
  }

  std::array<ChunkId, 2> chunks_;
  int microbatches_;
  bool forward_only_;
  std::array<std::array<int, 2>, 4> next_{};  // [op][side]
  std::vector<Action> actions_;
};

// One rank of DualPipeV. A backward is full, or an I whose W is queued.
class DualPipeRank {
 public:
  DualPipeRank(const Layout& layout, RankId rank)
      : chunks_{layout.chunk_of(rank, VirtualStage(0)), layout.chunk_of(rank, VirtualStage(1))},
        microbatches_(layout.microbatches()) {
    actions_.reserve(5 * static_cast<std::size_t>(microbatches_));
  }

  std::vector<Action> make(int pp, int r) && {
    for (int i = 0; i < 2 * (pp - r - 1); ++i)
      add(Fa);
    for (int i = 0; i < r + 1; ++i) {
      add(Fa);
      add(Fb);
    }
    for (int i = 0; i < pp - r - 1; ++i) {
      add(Ib);
      add_weight();
      add(Fb);
    }
    for (int i = 0; i < microbatches_ - 2 * pp + r + 1; ++i) {
      if (i == 0 && r == pp - 1) {  // on the last rank b's first backward needs a forward that ran just before
        add(Fa);
        add(Bb);
      } else {
        add_pair(Fa, Bb);
      }
      add_pair(Fb, Ba);
    }
    for (int i = 0; i < pp - r - 1; ++i) {
      add(Bb);
      add_pair(Fb, Ba);
    }
    // From the middle of this phase on the backwards are split: what waits upstream needs only the I.
    const int split_from = (r + 1) / 2;
    for (int i = 0; i < r + 1; ++i) {
      const bool b_is_split = r % 2 == 1 ? i >= split_from : i > split_from;
      add(b_is_split ? Ib : Bb);
      add(i >= split_from ? Ia : Ba);
    }
    for (int i = 0; i < pp - r - 1; ++i) {
      add_weight();
      add(Ia);
    }
    for (int i = 0; i < r + 1; ++i)
      add_weight();
    return std::move(actions_);
  }

 private:
  Compute take(Part part) {
    int& next = next_[part.op == Op::forward ? 0 : 1][part.side];
    const Compute compute{part.op, chunks_[part.side], Microbatch(next++)};
    if (part.op == Op::backward_input) weights_.push_back({Op::backward_weight, compute.chunk, compute.microbatch});
    return compute;
  }

  void add(Part part) { actions_.push_back({take(part), std::nullopt}); }

  void add_pair(Part forward, Part backward) {
    const Compute first = take(forward);
    actions_.push_back({first, take(backward)});
  }

  void add_weight() { actions_.push_back({weights_[next_weight_++], std::nullopt}); }

  std::array<ChunkId, 2> chunks_;
  int microbatches_;
  std::array<std::array<int, 2>, 2> next_{};  // [forward, backward][side]
  std::vector<Compute> weights_;              // all that were queued, in order
  std::size_t next_weight_ = 0;
  std::vector<Action> actions_;
};

void drop_backwards(std::vector<Action>& actions) {
  std::erase_if(actions, [](const Action& action) { return action.first.op != Op::forward; });
  for (Action& action : actions)
    action.second.reset();
}

}  // namespace

Schedule zb_v(const Layout& layout, bool forward_only) {
  Schedule schedule = empty_schedule(ScheduleKind::zb_v, layout, forward_only);
  for (int rank = 0; rank < layout.pp(); ++rank) {
    schedule.ranks[static_cast<std::size_t>(rank)] =
        ZeroBubbleRank(layout, RankId(rank), forward_only).make(layout.pp(), rank);
  }
  return schedule;
}

Schedule dualpipe_v(const Layout& layout, bool forward_only) {
  Schedule schedule = empty_schedule(ScheduleKind::dualpipe_v, layout, forward_only);
  for (int rank = 0; rank < layout.pp(); ++rank) {
    std::vector<Action>& actions = schedule.ranks[static_cast<std::size_t>(rank)];
    actions = DualPipeRank(layout, RankId(rank)).make(layout.pp(), rank);
    if (forward_only) drop_backwards(actions);
  }
  return schedule;
}

}  // namespace plumb

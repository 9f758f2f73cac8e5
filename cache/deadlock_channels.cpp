// SPDX-License-Identifier: Apache-2.0
#include "deadlock_channels.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "plumb/schedule/invariant.hpp"

namespace plumb {

StepNumbers::StepNumbers(const Program& program) {
  std::size_t next = 0;
  for (const RankProgram& rank : program.ranks) {
    first_.push_back(static_cast<std::int32_t>(next));
    num_computes_.push_back(static_cast<std::int32_t>(rank.compute.size()));
    next += rank.compute.size() + rank.comm.size();
  }
  require(next <= INT32_MAX / 2, [] { return "deadlock: more than 2^30 steps cannot be numbered"; });
  first_.push_back(static_cast<std::int32_t>(next));
}

RankId StepNumbers::rank_of(std::int32_t number) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), number);
  return RankId(static_cast<std::size_t>(after - first_.begin()) - 1);
}

StepRef StepNumbers::step_of(std::int32_t number) const {
  const std::size_t rank = rank_of(number).index();
  const std::int32_t local = number - first_[rank];
  return local < num_computes_[rank] ? StepRef{false, local} : StepRef{true, local - num_computes_[rank]};
}

namespace {

bool moves(const CommStep& step) { return step.kind == CommKind::send || step.kind == CommKind::receive; }

class Planner {
  static constexpr std::int32_t none = ChannelPlan::none;

 public:
  Planner(const Program& program, const StepNumbers& numbers, ChannelModel model)
      : program_(program), numbers_(numbers), model_(model) {
    plan_.partner.assign(numbers.size(), none);
    plan_.before.assign(numbers.size(), none);
  }

  ChannelPlan plan() {
    order_steps();
    if (model_ == ChannelModel::buffered) {
      match_by_message();
    } else {
      match_by_place();
    }
    if (model_ == ChannelModel::single_stream) form_groups();
    return std::move(plan_);
  }

 private:
  std::int32_t& before(std::int32_t step) { return plan_.before[static_cast<std::size_t>(step)]; }

  // Computations follow each other; under rendezvous the whole rank does.
  void order_steps() {
    for (RankId rank; rank.index() < program_.ranks.size(); rank = rank.next()) {
      std::int32_t last = none;
      for (const StepRef& step : program_.ranks[rank.index()].order) {
        if (step.comm && model_ != ChannelModel::rendezvous) continue;
        const std::int32_t number = numbers_.of(rank, step);
        before(number) = std::exchange(last, number);
      }
    }
  }

  template <class Visit>
  void for_each_end(Visit&& visit) const {
    for (RankId rank; rank.index() < program_.ranks.size(); rank = rank.next()) {
      const std::vector<CommStep>& comm = program_.ranks[rank.index()].comm;
      for (std::size_t i = 0; i < comm.size(); ++i) {
        if (moves(comm[i])) visit(rank, comm[i], numbers_.of(rank, {true, static_cast<std::int32_t>(i)}));
      }
    }
  }

  void join(std::int32_t a, std::int32_t b) {
    if (a == none || b == none) return;
    plan_.partner[static_cast<std::size_t>(a)] = b;
    plan_.partner[static_cast<std::size_t>(b)] = a;
  }

  void match_by_message() {
    std::vector<std::int32_t> sends(program_.messages.size(), none);
    std::vector<std::int32_t> receives(program_.messages.size(), none);
    for_each_end([&](RankId, const CommStep& step, std::int32_t number) {
      // A second end of the same message stays without a partner.
      std::int32_t& end = (step.kind == CommKind::send ? sends : receives)[step.message.index()];
      if (end == none) end = number;
    });
    for (std::size_t i = 0; i < sends.size(); ++i) {
      join(sends[i], receives[i]);
    }
  }

  // The n-th entry on one side of a channel meets the n-th on the other.
  void match_by_place() {
    number_edges();
    const auto num_ranks = program_.ranks.size();
    pair_numbers_.assign(model_ == ChannelModel::fifo_per_edge ? 0 : num_ranks * num_ranks, none);
    const bool queues_hold_back = model_ != ChannelModel::rendezvous && model_ != ChannelModel::single_stream;
    std::vector<std::array<std::int32_t, 2>> length;  // [channel][side]
    std::vector<std::array<std::int32_t, 2>> last;
    for_each_end([&](RankId rank, const CommStep& step, std::int32_t number) {
      const auto [channel, side] = place_of(rank, step);
      if (channel >= length.size()) {
        length.resize(channel + 1, {0, 0});
        last.resize(channel + 1, {none, none});
      }
      ++length[channel][side];
      const std::int32_t previous = std::exchange(last[channel][side], number);
      if (queues_hold_back) before(number) = previous;
    });
    // Lay the queues of all channels out behind each other; both sides get the room of the longer one.
    std::vector<std::size_t> begin(length.size() + 1, 0);
    for (std::size_t i = 0; i < length.size(); ++i) {
      begin[i + 1] = begin[i] + static_cast<std::size_t>(std::max(length[i][0], length[i][1]));
      length[i] = {0, 0};
    }
    std::array<std::vector<std::int32_t>, 2> queue;
    queue.fill(std::vector<std::int32_t>(begin.back(), none));
    for_each_end([&](RankId rank, const CommStep& step, std::int32_t number) {
      const auto [channel, side] = place_of(rank, step);
      queue[side][begin[channel] + static_cast<std::size_t>(length[channel][side]++)] = number;
    });
    for (std::size_t i = 0; i < begin.back(); ++i) {
      join(queue[0][i], queue[1][i]);
    }
  }

  // Numbers the (from chunk, to chunk) pairs of the transfers.
  void number_edges() {
    if (model_ != ChannelModel::fifo_per_edge) return;
    const std::vector<Transfer>& transfers = program_.routing.transfers;
    const auto chunks_of = [&](std::size_t t) { return std::pair(transfers[t].from_chunk, transfers[t].to_chunk); };
    std::vector<std::size_t> sorted(transfers.size());
    for (std::size_t t = 0; t < sorted.size(); ++t) {
      sorted[t] = t;
    }
    std::sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) { return chunks_of(a) < chunks_of(b); });
    edge_.resize(transfers.size());
    std::size_t edge = 0;
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      if (i > 0 && chunks_of(sorted[i]) != chunks_of(sorted[i - 1])) ++edge;
      edge_[sorted[i]] = edge;
    }
  }

  struct Place {
    std::size_t channel;
    std::size_t side;
  };

  Place place_of(RankId rank, const CommStep& step) {
    const bool sends = step.kind == CommKind::send;
    const std::size_t lane = static_cast<std::size_t>(step.lane);
    const std::size_t side = sends ? 0 : 1;
    const RankId from = sends ? rank : step.peer;
    const RankId to = sends ? step.peer : rank;
    switch (model_) {
      case ChannelModel::fifo_per_edge: {
        const Message& message = program_.messages[step.message.index()];
        const std::size_t direction = static_cast<std::size_t>(message.direction);
        return {(edge_[message.transfer.index()] * 2 + direction) * 2 + lane, side};
      }
      case ChannelModel::shared_fifo:
        return {pair_number(std::min(from, to), std::max(from, to)), rank > step.peer ? std::size_t{1} : 0};
      case ChannelModel::rendezvous:
        return {pair_number(from, to) * 2 + lane, side};
      default:
        return {pair_number(from, to), side};
    }
  }

  std::size_t pair_number(RankId a, RankId b) {
    std::int32_t& number = pair_numbers_[a.index() * program_.ranks.size() + b.index()];
    if (number == none) number = num_pairs_++;
    return static_cast<std::size_t>(number);
  }

  // Neighbouring sends and receives form a group until something is computed (also an add or a zero) or the same slot
  // is both sent and received.
  void form_groups() {
    plan_.group.assign(numbers_.size(), none);
    for (RankId rank; rank.index() < program_.ranks.size(); rank = rank.next()) {
      const RankProgram& steps = program_.ranks[rank.index()];
      const auto num_slots = static_cast<std::size_t>(steps.num_value_slots + steps.num_gradient_slots);
      std::array<std::vector<std::int32_t>, 2> last_group;  // [receives][slot]: the last group that did
      last_group.fill(std::vector<std::int32_t>(num_slots, none));
      const auto cell = [&](const Slot& slot) {
        return static_cast<std::size_t>(slot.index + (slot.slot_class == SlotClass::value ? 0 : steps.num_value_slots));
      };
      std::int32_t group = none;
      std::int32_t before_group = none;
      for (const StepRef& step : steps.order) {
        const CommStep* comm = step.comm ? &steps.comm[static_cast<std::size_t>(step.index)] : nullptr;
        if (comm == nullptr || !moves(*comm)) {
          if (group != none) before_group = std::exchange(group, none);
          continue;
        }
        const auto segments = steps.segments_of(comm->segments);
        const std::size_t receives = comm->kind == CommKind::receive ? 1 : 0;
        const bool clashes = std::any_of(segments.begin(), segments.end(), [&](const Slot& slot) {
          return group != none && last_group[1 - receives][cell(slot)] == group;
        });
        if (clashes) before_group = std::exchange(group, none);
        const std::int32_t number = numbers_.of(rank, step);
        if (group == none) {
          plan_.group_first.push_back(number);
          plan_.group_size.push_back(0);
          group = static_cast<std::int32_t>(plan_.group_first.size()) - 1;
        }
        for (const Slot& slot : segments) {
          last_group[receives][cell(slot)] = group;
        }
        plan_.group[static_cast<std::size_t>(number)] = group;
        ++plan_.group_size.back();
        if (before_group != none) before(number) = static_cast<std::int32_t>(numbers_.size()) + before_group;
      }
    }
  }

  const Program& program_;
  const StepNumbers& numbers_;
  ChannelModel model_;
  ChannelPlan plan_;
  std::vector<std::size_t> edge_;           // [transfer]
  std::vector<std::int32_t> pair_numbers_;  // [rank][rank]
  std::int32_t num_pairs_ = 0;
};

}  // namespace

ChannelPlan plan_channels(const Program& program, const StepNumbers& numbers, ChannelModel model) {
  return Planner(program, numbers, model).plan();
}

}  // namespace plumb

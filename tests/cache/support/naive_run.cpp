// SPDX-License-Identifier: Apache-2.0
#include "naive_run.hpp"

#include <deque>
#include <map>
#include <string>
#include <vector>

namespace plumb::test {
namespace {

struct NaiveStep {
  std::vector<std::size_t> waits;  // positions of the same rank
  bool compute = false;
  bool local = false;  // add or zero
  CommStep comm;
  std::vector<std::pair<SlotClass, std::int32_t>> slots;
  std::size_t group = 0;
  bool done = false;
};

using Place = std::pair<std::size_t, std::size_t>;  // rank, position

class NaiveRun {
 public:
  NaiveRun(const Program& program, ChannelModel model) : program_(program), model_(model) {
    for (const RankProgram& rank : program.ranks) {
      ranks_.push_back(unpack(rank));
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t i = 0; i < ranks_[r].size(); ++i) {
        if (is_end(ranks_[r][i])) queues_[queue_name(r, ranks_[r][i])][side_of(r, ranks_[r][i])].push_back({r, i});
      }
    }
  }

  std::set<Place> run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        for (std::size_t i = 0; i < ranks_[r].size(); ++i) {
          NaiveStep& step = ranks_[r][i];
          if (!step.done && !is_end(step) && may_begin(r, i)) step.done = moved = true;
        }
      }
      for (auto& [name, queue] : queues_) {
        while (match(queue)) {
          moved = true;
        }
      }
    }
    std::set<Place> stuck;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t i = 0; i < ranks_[r].size(); ++i) {
        if (!ranks_[r][i].done) stuck.insert({r, i});
      }
    }
    return stuck;
  }

 private:
  static bool is_end(const NaiveStep& step) { return !step.compute && !step.local; }

  std::vector<NaiveStep> unpack(const RankProgram& rank) const {
    std::map<std::pair<bool, std::int32_t>, std::size_t> position;
    for (std::size_t i = 0; i < rank.order.size(); ++i) {
      position[{rank.order[i].comm, +rank.order[i].index}] = i;
    }
    std::vector<NaiveStep> steps;
    std::size_t group = 0;
    std::set<std::pair<SlotClass, std::int32_t>> sent;
    std::set<std::pair<SlotClass, std::int32_t>> received;
    const auto next_group = [&] {
      ++group;
      sent.clear();
      received.clear();
    };
    for (const StepRef& ref : rank.order) {
      const auto index = static_cast<std::size_t>(ref.index);
      NaiveStep step;
      step.compute = !ref.comm;
      for (const Wait& wait : rank.waits_of(ref.comm ? rank.comm[index].waits : rank.compute[index].waits)) {
        step.waits.push_back(position.at({wait.on == Wait::On::comm, +wait.step}));
      }
      if (ref.comm) {
        step.comm = rank.comm[index];
        step.local = step.comm.kind == CommKind::add || step.comm.kind == CommKind::zero;
        for (const Slot& slot : rank.segments_of(step.comm.segments)) {
          step.slots.push_back({slot.slot_class, slot.index});
        }
      }
      if (!is_end(step)) {
        next_group();
      } else {
        const bool sends = step.comm.kind == CommKind::send;
        for (const auto& slot : step.slots) {
          if ((sends ? received : sent).count(slot) > 0) {
            next_group();
            break;
          }
        }
        (sends ? sent : received).insert(step.slots.begin(), step.slots.end());
      }
      step.group = group;
      steps.push_back(step);
    }
    return steps;
  }

  std::string queue_name(std::size_t rank, const NaiveStep& step) const {
    const bool sends = step.comm.kind == CommKind::send;
    const std::string from = std::to_string(sends ? rank : step.comm.peer.index());
    const std::string to = std::to_string(sends ? step.comm.peer.index() : rank);
    const std::string lane = step.comm.lane == MessageLane::urgent ? " urgent" : " bulk";
    const Message& message = program_.messages[step.comm.message.index()];
    const Transfer& transfer = program_.transfer_of(step.comm.message);
    switch (model_) {
      case ChannelModel::buffered:
        return std::to_string(step.comm.message.value);
      case ChannelModel::fifo_per_edge:
        return std::to_string(transfer.from_chunk.value) + ">" + std::to_string(transfer.to_chunk.value) +
               (message.direction == Direction::forward ? " F" : " B") + lane;
      case ChannelModel::shared_fifo:
        return rank < step.comm.peer.index() ? std::to_string(rank) + "-" + std::to_string(step.comm.peer.index())
                                             : std::to_string(step.comm.peer.index()) + "-" + std::to_string(rank);
      case ChannelModel::rendezvous:
        return from + ">" + to + lane;
      default:
        return from + ">" + to;
    }
  }

  std::size_t side_of(std::size_t rank, const NaiveStep& step) const {
    if (model_ == ChannelModel::shared_fifo) return rank > step.comm.peer.index() ? 1 : 0;
    return step.comm.kind == CommKind::send ? 0 : 1;
  }

  bool may_begin(std::size_t rank, std::size_t i) const {
    const std::vector<NaiveStep>& steps = ranks_[rank];
    for (const std::size_t wait : steps[i].waits) {
      if (!steps[wait].done) return false;
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (steps[j].done) continue;
      if (model_ == ChannelModel::rendezvous) return false;
      if (steps[i].compute && steps[j].compute) return false;
      const bool both_ends = is_end(steps[i]) && is_end(steps[j]);
      if (model_ == ChannelModel::single_stream && both_ends && steps[j].group != steps[i].group) return false;
    }
    return true;
  }

  using Queue = std::map<std::size_t, std::deque<Place>>;  // [side]

  bool match(Queue& queue) {
    std::deque<Place>& a = queue[0];
    std::deque<Place>& b = queue[1];
    if (model_ == ChannelModel::buffered && !a.empty()) {
      NaiveStep& send = ranks_[a.front().first][a.front().second];
      if (!send.done && may_begin(a.front().first, a.front().second)) return send.done = true;
      if (!send.done || b.empty() || !may_begin(b.front().first, b.front().second)) return false;
    } else {
      if (a.empty() || b.empty() || !may_begin(a.front().first, a.front().second) ||
          !may_begin(b.front().first, b.front().second)) {
        return false;
      }
    }
    NaiveStep& first = ranks_[a.front().first][a.front().second];
    NaiveStep& second = ranks_[b.front().first][b.front().second];
    if (first.comm.kind == second.comm.kind) return false;
    first.done = second.done = true;
    a.pop_front();
    b.pop_front();
    return true;
  }

  const Program& program_;
  ChannelModel model_;
  std::vector<std::vector<NaiveStep>> ranks_;
  std::map<std::string, Queue> queues_;
};

}  // namespace

std::set<Place> stuck_steps(const Program& program, ChannelModel model) { return NaiveRun(program, model).run(); }

}  // namespace plumb::test

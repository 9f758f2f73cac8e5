// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/critical_path.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "alone_times.hpp"

namespace plumb {
namespace {

PathKind path_kind_of(Op op) {
  if (op == Op::forward) return PathKind::forward;
  return op == Op::backward_weight ? PathKind::backward_weight : PathKind::backward;
}

// The places of a message's two ends in their ranks' lists.
struct Ends {
  std::int32_t send = -1;
  std::int32_t receive = -1;
};

class Walker {
 public:
  Walker(const Program& program, const Timeline& timeline, AloneTimes alone)
      : program_(program), timeline_(timeline), alone_(std::move(alone)), ends_(program.messages.size()) {
    std::size_t steps = 0;
    for (const RankProgram& rank : program.ranks) {
      steps += rank.compute.size() + rank.comm.size();
      for (std::size_t i = 0; i < rank.comm.size(); ++i) {
        const CommStep& comm = rank.comm[i];
        if (comm.kind == CommKind::send) ends_[comm.message.index()].send = static_cast<std::int32_t>(i);
        if (comm.kind == CommKind::receive) ends_[comm.message.index()].receive = static_cast<std::int32_t>(i);
      }
    }
    most_turns_ = steps;
  }

  std::vector<PathPiece> run() {
    at_ = timeline_.step;
    std::optional<Awaited> now = last_of_all();
    // Each turn goes to an earlier step of the program, so they end.
    for (std::size_t turn = 0; now && turn <= most_turns_; ++turn) {
      add(PathKind::wait, now->rank, now->rank, now->finished);
      now = now->wait.on == Wait::On::compute ? before_compute(*now) : before_comm(*now);
    }
    if (!program_.ranks.empty()) add(PathKind::wait, RankId(0), RankId(0), SimTime(0));
    std::reverse(pieces_.begin(), pieces_.end());
    return std::move(pieces_);
  }

 private:
  struct Awaited {
    RankId rank;
    Wait wait;
    SimTime finished{0};
  };

  // Everything from `begin` to where the walk stands.
  void add(PathKind kind, RankId rank, RankId to, SimTime begin) {
    if (begin >= at_) return;
    pieces_.push_back({kind, rank, to, begin, at_});
    at_ = begin;
  }

  std::optional<Awaited> last_of_all() const {
    std::optional<Awaited> last;
    const auto look_at = [&](RankId rank, Wait wait) {
      const SimTime finished = timeline_.finished(rank, wait);
      if (!last || finished > last->finished) last = Awaited{rank, wait, finished};
    };
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      const RankProgram& rank = program_.ranks[r];
      if (!rank.compute.empty())
        look_at(RankId(r), {Wait::On::compute, static_cast<std::int32_t>(rank.compute.size()) - 1});
    }
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      for (std::size_t i = 0; i < program_.ranks[r].comm.size(); ++i)
        look_at(RankId(r), {Wait::On::comm, static_cast<std::int32_t>(i)});
    }
    return last;
  }

  std::optional<Awaited> last_input(RankId rank, Range waits, std::optional<Awaited> last) const {
    for (const Wait& wait : program_.ranks[rank.index()].waits_of(waits)) {
      const SimTime finished = timeline_.finished(rank, wait);
      if (!last || finished > last->finished) last = Awaited{rank, wait, finished};
    }
    return last;
  }

  std::optional<Awaited> before_compute(const Awaited& now) {
    const auto index = static_cast<std::size_t>(now.wait.step);
    const ComputeStep& step = program_.ranks[now.rank.index()].compute[index];
    add(path_kind_of(step.compute.op), now.rank, now.rank, timeline_.ranks[now.rank.index()].compute[index].start);
    std::optional<Awaited> last;
    if (index > 0) {
      const Wait previous{Wait::On::compute, static_cast<std::int32_t>(index) - 1};
      last = Awaited{now.rank, previous, timeline_.finished(now.rank, previous)};
    }
    return last_input(now.rank, step.waits, last);
  }

  std::optional<Awaited> before_comm(const Awaited& now) {
    const CommStep& step = program_.ranks[now.rank.index()].comm[static_cast<std::size_t>(now.wait.step)];
    if (step.kind == CommKind::add || step.kind == CommKind::zero) return last_input(now.rank, step.waits, {});
    const MessageTimes& times = timeline_.messages[step.message.index()];
    const RankId from = program_.sender(step.message);
    const RankId to = program_.receiver(step.message);
    const SimTime end = step.kind == CommKind::send ? times.sent : times.arrived;
    const SimTime alone = alone_.of(program_.messages[step.message.index()], end - times.start);
    bool receiver_last = times.posted > times.send_ready;
    if (times.posted > times.start) {
      // It left before its receive was there, and had come by then or not.
      receiver_last = step.kind == CommKind::receive && times.posted >= times.start + alone;
      if (receiver_last) {
        add(PathKind::queue, from, to, times.posted);
        return follow(to, ends_[step.message.index()].receive);
      }
    }
    add(PathKind::wire, from, to, end - alone);
    add(PathKind::queue, from, to, times.start);
    const SimTime ready = receiver_last ? times.posted : times.send_ready;
    add(PathKind::wire, from, to, std::max(ready, times.start - alone_.launch()));
    add(PathKind::queue, from, to, ready);
    const Ends& ends = ends_[step.message.index()];
    return receiver_last ? follow(to, ends.receive) : follow(from, ends.send);
  }

  std::optional<Awaited> follow(RankId rank, std::int32_t comm) const {
    return last_input(rank, program_.ranks[rank.index()].comm[static_cast<std::size_t>(comm)].waits, {});
  }

  const Program& program_;
  const Timeline& timeline_;
  const AloneTimes alone_;
  std::vector<Ends> ends_;  // [message]
  std::size_t most_turns_ = 0;
  SimTime at_{0};
  std::vector<PathPiece> pieces_;
};

}  // namespace

std::string_view to_string(PathKind kind) {
  switch (kind) {
    case PathKind::forward:
      return "F";
    case PathKind::backward:
      return "B";
    case PathKind::backward_weight:
      return "W";
    case PathKind::wire:
      return "wire";
    case PathKind::queue:
      return "queue";
    case PathKind::wait:
      break;
  }
  return "wait";
}

std::vector<PathPiece> critical_path(const Program& program, const CostModel& costs, const Timeline& timeline,
                                     const NetworkModel* network) {
  return Walker(program, timeline, network != nullptr ? AloneTimes(program, costs, *network) : AloneTimes()).run();
}

std::vector<PathShare> path_shares(const std::vector<PathPiece>& path) {
  std::map<std::tuple<PathKind, RankId, RankId>, PathShare> sums;
  for (const PathPiece& piece : path) {
    PathShare& sum = sums[{piece.kind, piece.rank, piece.to}];
    sum.kind = piece.kind;
    sum.rank = piece.rank;
    sum.to = piece.to;
    ++sum.count;
    sum.time += piece.end - piece.begin;
  }
  std::vector<PathShare> shares;
  for (const auto& [key, sum] : sums)
    shares.push_back(sum);
  std::stable_sort(shares.begin(), shares.end(),
                   [](const PathShare& a, const PathShare& b) { return a.time > b.time; });
  return shares;
}

std::string name_of(const PathShare& share) {
  if (share.kind == PathKind::wait) return "nothing to do";
  if (is_message(share.kind))
    return fmt::format("{}, rank {} to rank {}", share.kind == PathKind::wire ? "message on its way" : "message queued",
                       share.rank.value, share.to.value);
  return fmt::format("{} of rank {}", to_string(share.kind), share.rank.value);
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// rank_speed.hpp: computations that go on more slowly while their rank moves messages, waits for the other end of one,
// or shares the cores of its machine with more ranks that compute than it has.
//
// A rank's speed is constant between two instants; what is left of a computation is known exactly, its end is the
// nearest picosecond. Speeds are parts of 2^20.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "plumb/schedule/ids.hpp"
#include "plumb/simulator/network_model.hpp"

namespace plumb {

class RankSpeeds {
 public:
  RankSpeeds(std::size_t num_ranks, const MessageProtocol& protocol, const SharedCores& shared)
      : moving_(speed(protocol.compute_share_while_active)),
        waiting_(speed(protocol.compute_share_while_waiting)),
        ranks_(num_ranks),
        cores_(static_cast<std::uint64_t>(shared.cores)) {
    if (!cores_are_scarce(shared)) return;
    machine_of_ = shared.machine;
    machines_.resize(num_ranks);
    for (std::size_t r = 0; r < num_ranks; ++r)
      machines_[static_cast<std::size_t>(shared.machine[r])].ranks.push_back(RankId(r));
  }

  // The end at the rank's speed of now.
  SimTime begin(RankId rank, SimTime duration, SimTime now) {
    State& state = ranks_[rank.index()];
    state.left = Wide(static_cast<std::uint64_t>(duration.count())) * full;
    state.since = now;
    state.computes = true;
    computing(rank, +1);
    state.end = state.speed == full ? now + duration : now + time_for(state.left, state.speed);
    return state.end;
  }
  SimTime end(RankId rank) const { return ranks_[rank.index()].end; }
  void finish(RankId rank) {
    ranks_[rank.index()].computes = false;
    computing(rank, -1);
  }

  // One operation of the rank begins, finds its other end, is through: always all three.
  void waits(RankId rank) { count(rank, +1, 0); }
  void moves(RankId rank) { count(rank, -1, +1); }
  void done(RankId rank) { count(rank, 0, -1); }

  // At the end of an instant: visit(rank, end) for each computation whose end is now another one.
  template <class Visit>
  void for_each_changed(SimTime now, Visit&& visit) {
    for (const RankId rank : dirty_) {
      State& state = ranks_[rank.index()];
      state.dirty = false;
      const std::uint64_t messages_leave = state.num_moving > 0 ? moving_ : state.num_waiting > 0 ? waiting_ : full;
      const std::uint64_t speed = messages_leave * cores_ / std::max(cores_, num_computing(rank));
      if (speed == state.speed) continue;
      if (state.computes) {
        const Wide done = Wide(static_cast<std::uint64_t>((now - state.since).count())) * state.speed;
        state.left = done < state.left ? state.left - done : 0;
        state.since = now;
        state.end = now + time_for(state.left, speed);
        visit(rank, state.end);
      }
      state.speed = speed;
    }
    dirty_.clear();
  }

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr std::uint64_t full = std::uint64_t{1} << 20;

  struct State {
    Wide left = 0;  // picoseconds at full speed, times 2^20
    SimTime since{0};
    SimTime end{0};
    std::uint64_t speed = full;
    std::int32_t num_moving = 0;
    std::int32_t num_waiting = 0;
    bool computes = false;
    bool dirty = false;
  };

  struct Machine {
    std::vector<RankId> ranks{};
    std::uint64_t num_computing = 0;
  };

  static std::uint64_t speed(double share) {
    return full - static_cast<std::uint64_t>(std::llround(share * static_cast<double>(full)));
  }
  static SimTime time_for(Wide left, std::uint64_t speed) {
    return SimTime(static_cast<std::int64_t>((left + speed / 2) / speed));
  }

  void count(RankId rank, std::int32_t waiting, std::int32_t moving) {
    if (moving_ == full && waiting_ == full) return;
    State& state = ranks_[rank.index()];
    state.num_waiting += waiting;
    state.num_moving += moving;
    look_again(rank);
  }

  void computing(RankId rank, int change) {
    if (machines_.empty()) return;
    Machine& machine = machines_[static_cast<std::size_t>(machine_of_[rank.index()])];
    machine.num_computing += static_cast<std::uint64_t>(change);
    for (const RankId other : machine.ranks)
      look_again(other);
  }
  std::uint64_t num_computing(RankId rank) const {
    return machines_.empty() ? 0 : machines_[static_cast<std::size_t>(machine_of_[rank.index()])].num_computing;
  }

  void look_again(RankId rank) {
    State& state = ranks_[rank.index()];
    if (!state.dirty) dirty_.push_back(rank);
    state.dirty = true;
  }

  std::uint64_t moving_;
  std::uint64_t waiting_;
  std::vector<State> ranks_;
  std::vector<RankId> dirty_;
  std::uint64_t cores_;
  std::vector<std::int32_t> machine_of_;  // [rank]
  std::vector<Machine> machines_;         // empty where cores are not scarce
};

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// recurrence.hpp (private): finds two instants, one period apart, between which a simulation came back to where it was.
//
// Where everything that decides how a simulation goes on is what it was a period ago, only later, what follows is what
// followed then, as long as the program goes on as it did. So the periods that were left out of the program would have
// gone like this one, and the rest of the shorter program goes as it would have gone behind them. Nothing that was left
// out, or stands behind it, may have been begun or made ready by then.
#pragma once

#include <optional>
#include <tuple>
#include <vector>

#include "engine_state.hpp"

namespace plumb {

class Recurrence {
 public:
  explicit Recurrence(const EngineState& state);

  // Call at the end of each instant.
  void look() {
    if (watches_ && state_.running[0] >= next_) look_back();
  }
  bool watches() const { return watches_; }
  bool found() const { return found_; }
  SimTime begin() const { return begin_; }
  SimTime end() const { return end_; }

 private:
  using Coming = std::tuple<std::int64_t, SimEvent::Kind, std::int32_t, std::int64_t>;
  using Waiting = std::tuple<std::int32_t, MessageLane, std::int64_t, std::int32_t, std::int64_t>;

  struct CommPast {
    SimTime inputs_computed{0};
    SimTime send_ready{0};
    std::int32_t pending = 0;
    std::uint8_t gates = 0;  // of its message
    bool finished = false;
  };
  // Of one rank, all steps from the first unfinished one to the cut.
  struct RankPast {
    std::int32_t first_compute = 0;
    std::int32_t first_comm = 0;
    std::vector<StepState> computes;
    std::vector<CommPast> comms;
  };
  struct Past {
    SimTime now{0};
    std::vector<Coming> coming;
    std::vector<Waiting> waiting;
    std::vector<RankPast> ranks;
  };

  void look_back();
  bool find_first_unfinished();
  // How far off, what, of which rank or message so many before, and how long ago the last computation behind it ended.
  std::vector<Coming> coming(std::int32_t messages) const;
  // On which link and lane, since how long, which message so many before, and the same.
  std::vector<Waiting> waiting(std::int32_t messages) const;
  std::int64_t computed_ago(MessageId message) const;
  CommPast comm_now(RankId rank, std::int32_t index) const;
  Past past() const;
  bool is_past_again(const Past& past) const;
  bool is_again(const Past& past, RankId rank) const;
  bool waits_for_compute(RankId rank, std::int32_t comm) const;
  bool waits_are_left_again(const RankPast& before, RankId rank) const;
  bool all_ahead_is_untouched(const RankPast& before, RankId rank) const;

  const EngineState& state_;
  bool watches_;
  bool found_ = false;
  SimTime begin_{0};
  SimTime end_{0};
  std::int32_t next_ = 0;                    // computation of the first rank
  std::vector<std::int32_t> first_compute_;  // [rank] first unfinished
  std::vector<std::int32_t> first_comm_;
  std::optional<Past> past_;
};

}  // namespace plumb

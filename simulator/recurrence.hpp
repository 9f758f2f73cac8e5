// SPDX-License-Identifier: Apache-2.0
//
// recurrence.hpp (private): notices when a simulation is where it was one period ago.
//
// Where everything that decides how a simulation goes on is what it was a period ago, only later and with later steps
// and messages, what follows is what followed then, for as long as the program goes on as it did there. How long that
// is says `times`; repeat() (repetition.hpp) tells it. A schedule may have several steady parts: looped breadth-first
// has one in each pass.
//
// What decides is which steps have finished, which data is ready to be sent, and what is on its way. How many events a
// step still lacks, or a message, follows from that and from the program. What is not open has not begun.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "engine_state.hpp"
#include "period.hpp"
#include "plumb/cache/steady.hpp"

namespace plumb {

class Recurrence {
 public:
  explicit Recurrence(const EngineState& state);

  // Call at the end of each instant. True if a period has just ended that comes again, so many `times`.
  bool look() { return state_.running[0] >= next_ && look_back(); }
  const Period& period() const { return period_; }
  std::int32_t times() const { return times_; }

 private:
  using Coming = std::tuple<std::int64_t, SimEvent::Kind, std::int32_t>;
  using Waiting = std::tuple<std::int32_t, MessageLane, std::int64_t, std::int32_t>;

  struct CommPast {
    bool finished = false;
    bool ready = false;  // unless it receives: when the slots were free is of no matter as long as nothing comes
    SimTime send_ready{0};
    friend bool operator==(const CommPast&, const CommPast&) = default;
  };
  // Of one rank, from the first unfinished steps on.
  struct RankPast {
    std::int32_t first_compute = 0;
    std::int32_t first_comm = 0;
    std::vector<CommPast> comms;
  };
  struct Past {
    SimTime now{0};
    std::vector<Coming> coming;
    std::vector<Waiting> waiting;
    std::vector<RankPast> ranks;
  };

  bool look_back();
  void find_first_unfinished();
  // How far off, what, and of which rank or message so many before.
  std::vector<Coming> coming(std::int32_t messages) const;
  // On which link and lane, since how long, and which message so many before.
  std::vector<Waiting> waiting(std::int32_t messages) const;
  CommPast comm_now(RankId rank, std::int32_t index) const;
  Past past() const;
  bool is_past_again();
  bool is_again(RankId rank) const;
  std::int32_t messages_of_period() const;

  const EngineState& state_;
  std::vector<SteadyStretch> stretches_;  // of the first rank's computations
  std::size_t stretch_ = 0;
  std::int32_t num_failures_ = 0;         // in this stretch
  std::int32_t next_ = 0;                 // computation of the first rank
  std::vector<std::int32_t> first_comm_;  // [rank] first unfinished
  std::optional<Past> past_;
  Period period_;
  std::int32_t times_ = 0;
};

}  // namespace plumb

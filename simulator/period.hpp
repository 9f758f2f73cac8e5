// SPDX-License-Identifier: Apache-2.0
//
// period.hpp (private): a stretch of simulated time after which everything was as at its beginning, only later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plumb/simulator/sim_time.hpp"

namespace plumb {

// In one of a rank's two lists: `begin` was the first unfinished step when the period began, begin + steps is it when
// the period ends. All that happens in the period to steps of this list happens in front of `end`, but for what later
// parts of the list wait for.
struct ListPeriod {
  std::int32_t begin = 0;
  std::int32_t steps = 0;
  std::int32_t end = 0;
};

struct Period {
  SimTime begin{0};                   // what happened at this instant is not part of it
  SimTime end{0};                     // what happened at this one is
  std::vector<ListPeriod> compute{};  // [rank]
  std::vector<ListPeriod> comm{};
  std::int32_t messages = 0;  // by so many later is each message one period later

  SimTime duration() const { return end - begin; }
};

// A time one or several periods later. Times of what no computation stands behind are zero, and stay so.
inline SimTime later(SimTime time, SimTime by) { return time == SimTime(0) ? time : time + by; }

// Lists are counted in 32 bits here.
inline std::size_t place(std::int32_t index) { return static_cast<std::size_t>(index); }
inline std::int32_t length_of(const auto& list) { return static_cast<std::int32_t>(list.size()); }

}  // namespace plumb

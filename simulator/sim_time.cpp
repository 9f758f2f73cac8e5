// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/sim_time.hpp"

#include <cmath>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb {

SimTime from_us(double us, std::string_view what) {
  if (!(us >= 0 && us <= to_us(max_duration))) {
    throw InputError(fmt::format("{} is {} us: it must be 0..{:.0f}", what, us, to_us(max_duration)));
  }
  return SimTime(std::llround(us * 1e6));
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// sim_time.hpp: virtual time, in whole picoseconds.
//
// Integers, so that the order of events never hangs on a rounding and the same input gives the same bits. 2^63 ps are
// 106 days; one duration given by a user is at most 1000 s. Microseconds as floating point exist at the edges only.
#pragma once

#include <chrono>
#include <cstdint>
#include <ratio>
#include <string_view>

namespace plumb {

using SimTime = std::chrono::duration<std::int64_t, std::pico>;

// The longest duration that may be given: 1000 s.
inline constexpr SimTime max_duration{1'000'000'000'000'000};

// Rounds to the nearest picosecond. `what` names the quantity. Throws InputError unless 0 <= us <= 1e9 (1000 s).
SimTime from_us(double us, std::string_view what);

inline double to_us(SimTime time) { return static_cast<double>(time.count()) * 1e-6; }

}  // namespace plumb

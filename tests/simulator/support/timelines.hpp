// SPDX-License-Identifier: Apache-2.0
//
// timelines.hpp (tests): do two simulations agree to the picosecond?
#pragma once

#include <string>

#include "plumb/simulator/timeline.hpp"

namespace plumb::test {

// Empty if they are equal in everything, else the first that is not.
std::string first_difference(const Timeline& a, const Timeline& b);

}  // namespace plumb::test

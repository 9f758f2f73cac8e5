// SPDX-License-Identifier: Apache-2.0
//
// ending.hpp: how the program ends when something went wrong: an exit code and the last line on stderr.
//
// Codes: 1 the answer is no, 2 bad input, 3 a peer or the environment failed. The line begins with one of the words
// usage, config, peer, timeout, net, protocol, memory, numeric.
#pragma once

#include <exception>
#include <string>

namespace plumb::lm {

struct Ending {
  int code = 0;
  std::string line;
};

// The ending for what was thrown. Never throws anything but std::bad_alloc.
Ending ending_of(const std::exception_ptr& thrown);

}  // namespace plumb::lm

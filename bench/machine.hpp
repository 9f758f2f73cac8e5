// SPDX-License-Identifier: Apache-2.0
//
// machine.hpp: where a measurement was made.
#pragma once

#include <string>

namespace plumb::bench {

struct Machine {
  std::string processor;
  unsigned num_threads = 0;
  std::string compiler;
};

Machine this_machine();

}  // namespace plumb::bench

// SPDX-License-Identifier: Apache-2.0
//
// schedule.hpp: per rank, the actions in order. Plain data.
//
// Made once by a pure generator or read from a file, then only interpreted: lowered to a Program, simulated, executed.
// It holds no times and no messages; what an action must wait for follows from its (chunk, microbatch, op).
#pragma once

#include <string>
#include <vector>

#include "plumb/schedule/action.hpp"
#include "plumb/schedule/layout.hpp"

namespace plumb {

struct Schedule {
  std::string name;  // "1f1b", "interleaved", or the file it came from; for people only
  Layout layout;
  std::vector<std::vector<Action>> ranks;  // [rank][position]
  bool forward_only = false;

  std::size_t num_actions() const;
};

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// programs.hpp (tests): lowered programs to check, encode and break.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "cache/support/layouts.hpp"
#include "plumb/cache/lower.hpp"

namespace plumb::test {

using ProgramPtr = std::shared_ptr<const Program>;

inline ProgramPtr share(Program program) { return std::make_shared<const Program>(std::move(program)); }

struct Limits {
  int pp = 8;
  int vp = 4;
  int sublayers = 40;
  int microbatches = 10;
};

// Any legal schedule of the generators for a random layout: V, M, placement and group vary, some have only forwards,
// some have every B split into an I and a W that runs at once or later.
Schedule random_schedule(Dice& dice, const Limits& limits);

// A random schedule over random cuts (uneven, inside blocks, empty chunks) under any policy.
Program random_program(Dice& dice, const Limits& limits = {});

// One line that names what was drawn, for a failing test.
std::string describe(const Program& program);

// 4 ranks, 2 virtual stages, 8 microbatches, cuts inside and at block ends.
Program small_program(Policy policy, bool forward_only = false);

}  // namespace plumb::test

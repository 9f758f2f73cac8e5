// SPDX-License-Identifier: Apache-2.0
//
// program_faults.hpp (tests): plants the faults that lowering never makes.
#pragma once

#include <string>

#include "plumb/cache/program.hpp"

namespace plumb::test {

// A contribution of one chunk to one block's gradient that is left out, or made twice.
struct PlantedContribution {
  RankId rank;
  Compute compute;
  BlockId block;
};
// first_touch: the one that would have opened the accumulator, else one that would have been added.
PlantedContribution drop_contribution(Program& program, bool first_touch = false);
PlantedContribution double_contribution(Program& program);

// Exchanges the first two messages of one forward channel in the list of the sender only. Returns the receiving rank.
RankId swap_first_messages(Program& program, RankId sender);

// Takes one block out of one transfer, everywhere: both ends' messages, the holding, its readers. REQUIRES
// forward_only.
void drop_block(Program& program);

}  // namespace plumb::test

// SPDX-License-Identifier: Apache-2.0
//
// named_programs.hpp (tests): lowered programs of every schedule that has a name, on layouts that it allows.
#pragma once

#include "cache/support/programs.hpp"
#include "plumb/schedule/named.hpp"

namespace plumb::test {

// P, V, M and the group vary within what the kind allows; some have only forwards unless `train_only`.
Schedule random_schedule_of(ScheduleKind kind, Dice& dice, const Limits& limits, bool train_only = false);

// The same over random cuts, under any policy and residual.
Program random_program_of(ScheduleKind kind, Dice& dice, const Limits& limits, bool train_only = false);

// A fixed one: so many ranks, 2 virtual stages where the kind allows them, 2 P microbatches, cuts inside and at block
// ends.
Program regular_program_of(ScheduleKind kind, int num_ranks, Policy policy);

bool splits_backward(const Program& program);

}  // namespace plumb::test

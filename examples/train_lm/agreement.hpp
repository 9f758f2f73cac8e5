// SPDX-License-Identifier: Apache-2.0
//
// agreement.hpp: all ranks stop together, with the same line, when one of them cannot go on or was told something else.
//
// Collective calls over the control plane. With a null control plane there is one rank, which agrees with itself.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "plumb/comm/control.hpp"
#include "train_lm/ending.hpp"

namespace plumb::lm {

// The longest that ranks wait for each other outside a step.
inline constexpr std::chrono::nanoseconds kControlLimit = std::chrono::minutes(5);

using Facts = std::vector<std::pair<std::string, std::string>>;

// `error`: one line, empty if this rank is fine. If any rank has one, throws InputError with the first of them
// everywhere.
void agree_on_errors(ControlPlane* control, const std::string& error);

// The ending of the first rank that has one (code not 0), the same on every rank.
Ending agree_on_ending(ControlPlane* control, const Ending& mine);

// Throws InputError on every rank, naming the first field whose values differ and two ranks that differ in it.
void agree_on_facts(ControlPlane* control, const Facts& facts);

}  // namespace plumb::lm

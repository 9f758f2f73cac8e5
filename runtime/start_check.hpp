// SPDX-License-Identifier: Apache-2.0
//
// start_check.hpp (private): do all ranks hold the same program? Asked before anything is sent.
#pragma once

#include <chrono>
#include <string>

#include "plumb/cache/encode.hpp"
#include "plumb/comm/control.hpp"
#include "plumb/runtime/executor.hpp"

namespace plumb {

// The program's fingerprint, preceded by what else must agree.
Fingerprint start_fingerprint(const Program& program, const SlotShape& shape, const ExecutorOptions& options);

std::string pack(const Fingerprint& fingerprint);
Fingerprint unpack(const std::string& text);

// Collective. Throws PlanMismatch naming the first rank that differs from the majority, the same on every rank.
void compare_programs(RankId rank, const Fingerprint& mine, ControlPlane& control, std::chrono::nanoseconds limit);

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// step_words.hpp (private): what a step of a program is called in a message to a person.
#pragma once

#include <string>

#include "rank_plan.hpp"

namespace plumb {

// "3RECV_F2", "0SEND_B1", "add of block 2, microbatch 0", "zero of block 2, microbatch 0".
std::string comm_action(const RankPlan& plan, std::int32_t comm);

// The action with its peer and content: "3RECV_F2 from rank 0 (partial and blocks 1 2, urgent)".
std::string comm_sentence(const RankPlan& plan, std::int32_t comm);

// "3F2".
std::string compute_action(const RankPlan& plan, std::size_t compute);

}  // namespace plumb

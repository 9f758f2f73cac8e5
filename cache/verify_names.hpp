// SPDX-License-Identifier: Apache-2.0
//
// verify_names.hpp (private): how steps are called in reports.
#pragma once

#include <string>

#include "plumb/cache/program.hpp"

namespace plumb {

// torch's token where there is one ("3B2", "0SEND_F1", "1RECV_F1"); a message torch has no word for gets a suffix
// ("0SEND_F1 bulk", "0SEND_F1 to chunk 5"); "add b_2 from rank 1 of microbatch 0". REQUIRES indices in range.
std::string step_token(const Program& program, RankId rank, StepRef step);

}  // namespace plumb

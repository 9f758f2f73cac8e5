// SPDX-License-Identifier: Apache-2.0
//
// compare_residual.hpp (private): --compare-residual of volume and sim: several residual designs under one layout.
#pragma once

#include "options.hpp"

namespace plumb::cli {

// REQUIRES options.compare_residual. Traffic, what is resident, and reads and writes of each design.
int run_compare_residual_volume(const Options& options);

// REQUIRES options.compare_residual. One simulated step of each design under the same order, costs and links.
int run_compare_residual_sim(const Options& options);

}  // namespace plumb::cli

// SPDX-License-Identifier: Apache-2.0
//
// sibling.hpp: runs a benchmark that is a program of its own, because it links what the others need not.
#pragma once

#include <string>
#include <vector>

namespace plumb::bench {

// Replaces this process by program `name` beside it. Returns the exit code for a program that cannot be started, after
// one line that says so.
int run_sibling(const std::string& name, const std::vector<std::string>& arguments);

}  // namespace plumb::bench

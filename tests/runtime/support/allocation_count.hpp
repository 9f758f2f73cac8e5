// SPDX-License-Identifier: Apache-2.0
//
// allocation_count.hpp (tests): counts every operator new of the process while it is switched on. Linking it replaces
// the global operators.
#pragma once

#include <cstdint>

namespace plumb::test {

void count_allocations(bool on);
std::uint64_t num_allocations();

}  // namespace plumb::test

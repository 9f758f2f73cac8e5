// SPDX-License-Identifier: Apache-2.0
// allocation_counter.hpp: counts this thread's calls of operator new. Linking allocation_counter.cpp replaces it for
// the whole program.
#pragma once

#include <cstdint>

namespace plumb::testing {

std::uint64_t num_allocations_of_this_thread() noexcept;

}  // namespace plumb::testing

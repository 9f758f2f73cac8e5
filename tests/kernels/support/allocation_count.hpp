// SPDX-License-Identifier: Apache-2.0
// allocation_count.hpp: how often this test program has called operator new, in any of its forms.
#pragma once

#include <cstdint>

namespace plumb::testing {

std::int64_t num_allocations();

}  // namespace plumb::testing

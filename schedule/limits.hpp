// SPDX-License-Identifier: Apache-2.0
//
// limits.hpp (private): the largest layouts, for messages that name the nearest legal value.
#pragma once

namespace plumb {

inline constexpr int max_chunks = 65536;
inline constexpr int max_microbatches = 1 << 20;

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// tensor_bytes.hpp: how much memory torch's tensors take, exactly: every one passes through an allocator that counts
// and keeps nothing back.
#pragma once

#include <cstddef>

namespace plumb::bench {

// Tensors made from now on are counted. Once per process.
void count_tensor_bytes();

// Most bytes of tensors at any time since the last call, beyond those alive at that call.
std::size_t peak_tensor_bytes();

}  // namespace plumb::bench

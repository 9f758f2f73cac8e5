// SPDX-License-Identifier: Apache-2.0
// tensor_stride.hpp: how far apart tensors of one shape are best laid in one piece of memory.
//
// An operator reads the same token's row of many tensors together. At the distance of a large power of two, which
// [tokens, width] often is, those rows would compete for the same few places in every cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plumb/kernels/storage.hpp"

namespace plumb {

/// Bytes from one [tokens, width] tensor to the next: a row and four cache lines more than one takes; a multiple of 64.
inline std::size_t tensor_stride_bytes(std::int64_t tokens, std::int64_t width, Storage storage) {
  const std::size_t row_bytes = static_cast<std::size_t>(width) * bytes_per_element(storage);
  return (static_cast<std::size_t>(tokens + 1) * row_bytes + 4 * 64 + 63) / 64 * 64;
}

}  // namespace plumb

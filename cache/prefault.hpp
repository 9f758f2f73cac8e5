// SPDX-License-Identifier: Apache-2.0
//
// prefault.hpp (private): memory that will be filled from end to end, asked for at once.
//
// The system hands a page out when it is first touched, at the price of an interrupt each. A program has a hundred
// thousand of them, and how many is known before.
#pragma once

#include <cstddef>
#include <vector>

namespace plumb {

// Whole pages of these bytes, if the system can do that; else, or if memory is short, they come one by one as ever.
void prefault(void* begin, std::size_t num_bytes);

// Room for so many entries, which must be about as many as there will be.
template <class T>
void reserve_at_once(std::vector<T>& list, std::size_t size) {
  list.reserve(size);
  prefault(list.data(), size * sizeof(T));
}

}  // namespace plumb

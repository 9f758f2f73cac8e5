// SPDX-License-Identifier: Apache-2.0
//
// tensor_buffer.hpp (private): one [tokens, width] tensor of a stage's own, grown on demand and kept; and sums of two.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "plumb/kernels/storage.hpp"

namespace plumb {

class TensorBuffer {
 public:
  View get(std::int64_t tokens, std::int64_t width, Storage storage) {
    const std::size_t size_bytes = static_cast<std::size_t>(tokens * width) * bytes_per_element(storage);
    const std::size_t num_units = (size_bytes + sizeof(double) - 1) / sizeof(double);
    if (memory_.size() < num_units) memory_.resize(num_units);
    return {memory_.data(), tokens, width, storage};
  }

 private:
  std::vector<double> memory_;  // for its alignment
};

template <class T>
void copy_elements(const View& to, const ConstView& from) {
  std::copy_n(elements<T>(from), from.num_elements(), elements<T>(to));
}

template <class T>
void add_elements(const View& to, const ConstView& from) {
  T* const sum = elements<T>(to);
  const T* const term = elements<T>(from);
  for (std::int64_t i = 0; i < to.num_elements(); ++i)
    sum[i] += term[i];
}

// to = from, to += from, to = 0; both of one format and shape.
inline void copy_tensor(const View& to, const ConstView& from) {
  (to.storage == Storage::fp64 ? copy_elements<double> : copy_elements<float>)(to, from);
}
inline void add_tensor(const View& to, const ConstView& from) {
  (to.storage == Storage::fp64 ? add_elements<double> : add_elements<float>)(to, from);
}
inline void clear_tensor(const View& to) {
  const std::size_t size_bytes = static_cast<std::size_t>(to.num_elements()) * bytes_per_element(to.storage);
  std::fill_n(static_cast<std::byte*>(to.data), size_bytes, std::byte{0});
}

}  // namespace plumb

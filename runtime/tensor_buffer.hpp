// SPDX-License-Identifier: Apache-2.0
//
// tensor_buffer.hpp (private): one [tokens, width] tensor of a stage's own, grown on demand and kept; and sums of two.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "plumb/kernels/number_formats.hpp"
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

inline float sum_of(float a, float b) { return a + b; }
inline double sum_of(double a, double b) { return a + b; }
inline Bf16 sum_of(Bf16 a, Bf16 b) { return to_bf16(to_float(a) + to_float(b)); }
inline Fp16 sum_of(Fp16 a, Fp16 b) { return to_fp16(to_float(a) + to_float(b)); }

template <class T>
void add_elements(const View& to, const ConstView& from) {
  T* const sum = elements<T>(to);
  const T* const term = elements<T>(from);
  for (std::int64_t i = 0; i < to.num_elements(); ++i)
    sum[i] = sum_of(sum[i], term[i]);
}

inline std::size_t bytes_of(const View& view) {
  return static_cast<std::size_t>(view.num_elements()) * bytes_per_element(view.storage);
}

// to = from, to += from (rounded once), to = 0; both of one format and shape.
inline void copy_tensor(const View& to, const ConstView& from) {
  std::copy_n(static_cast<const std::byte*>(from.data), bytes_of(to), static_cast<std::byte*>(to.data));
}
inline void add_tensor(const View& to, const ConstView& from) {
  switch (to.storage) {
    case Storage::fp64:
      return add_elements<double>(to, from);
    case Storage::bf16:
      return add_elements<Bf16>(to, from);
    case Storage::fp16:
      return add_elements<Fp16>(to, from);
    case Storage::fp32:
      break;
  }
  add_elements<float>(to, from);
}
inline void clear_tensor(const View& to) { std::fill_n(static_cast<std::byte*>(to.data), bytes_of(to), std::byte{0}); }

}  // namespace plumb

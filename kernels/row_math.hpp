// SPDX-License-Identifier: Apache-2.0
// row_math.hpp (private): arithmetic on one row of `width` elements, and the dispatch from Storage to C++ types.
//
// V is the type of stored values, A (= Accumulator<V>) that of statistics, gradients and queries. A sum over a row runs
// in kLanes independent partial sums that are joined by a fixed tree: the compiler may use vectors of any length up to
// kLanes without changing a bit, and rounding grows with width / kLanes instead of width.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "plumb/kernels/storage.hpp"

namespace plumb::kernels_detail {

template <class V>
struct AccumulatorOf;
template <>
struct AccumulatorOf<float> {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <class V>
using Accumulator = typename AccumulatorOf<V>::type;

/// Calls `run.template operator()<V>()` with the C++ type of `storage`. The reference knows fp32 and fp64 only.
template <class Run>
void with_storage(Storage storage, Run&& run) {
  if (storage == Storage::fp64) {
    run.template operator()<double>();
  } else if (storage == Storage::fp32) {
    run.template operator()<float>();
  } else {
    throw std::invalid_argument("depth attention: the reference has no " + std::string(to_string(storage)) +
                                "; legal: fp32, fp64 (see cpu_operators.hpp)");
  }
}

template <class T>
const T* row(const void* data, std::int64_t token, std::int64_t width) {
  return static_cast<const T*>(data) + token * width;
}
template <class T>
T* row(void* data, std::int64_t token, std::int64_t width) {
  return static_cast<T*>(data) + token * width;
}

inline constexpr std::int64_t kLanes = 16;

/// Sum of x_j y_j.
template <class A, class X, class Y>
A dot(const X* x, const Y* y, std::int64_t width) {
  A lane[kLanes] = {};
  std::int64_t j = 0;
  for (; j + kLanes <= width; j += kLanes) {
    for (std::int64_t k = 0; k < kLanes; ++k) {
      lane[k] += static_cast<A>(x[j + k]) * static_cast<A>(y[j + k]);
    }
  }
  for (std::int64_t k = 0; j + k < width; ++k) {
    lane[k] += static_cast<A>(x[j + k]) * static_cast<A>(y[j + k]);
  }
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t k = 0; k < half; ++k) {
      lane[k] += lane[k + half];
    }
  }
  return lane[0];
}

/// (|v|^2 / width + eps)^(-1/2)
template <class A, class V>
A inverse_rms_of_row(const V* v, std::int64_t width, double eps) {
  return A(1) / std::sqrt(dot<A>(v, v, width) / static_cast<A>(width) + static_cast<A>(eps));
}

/// y += a x
template <class Y, class A, class X>
void add_scaled(Y* y, A a, const X* x, std::int64_t width) {
  for (std::int64_t j = 0; j < width; ++j) {
    y[j] += a * static_cast<A>(x[j]);
  }
}

/// Numbers for one token's sources: on the stack up to kInline of them, which covers every model known.
template <class A>
class Scratch {
 public:
  explicit Scratch(std::size_t size) {
    if (size > kInline) {
      heap_ = std::make_unique<A[]>(size);
      data_ = heap_.get();
    }
  }
  A& operator[](std::size_t i) { return data_[i]; }

 private:
  static constexpr std::size_t kInline = 256;
  A inline_[kInline];
  std::unique_ptr<A[]> heap_;
  A* data_ = inline_;
};

}  // namespace plumb::kernels_detail

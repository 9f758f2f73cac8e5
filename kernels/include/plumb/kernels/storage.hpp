// SPDX-License-Identifier: Apache-2.0
// storage.hpp: the number formats of a tensor, and the two plain views that cross every interface of `kernels`.
//
// A view is a pointer with its shape and format. It is NOT an owner and NOT a tensor library: rows are contiguous,
// row-major, [tokens, width]. Widths count elements, sizes are bytes.
// Values (sources, partials, sublayer outputs) are kept in the storage format; statistics, softmax, gradients,
// gradient accumulators and depth parameters are kept in `gradient_storage(storage)`: fp32, and fp64 under fp64.
// Ownership: whoever made the memory. Threads: views are values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace plumb {

/// Format of stored values. fp64 means storage, arithmetic and gradients all in double, to check a pipeline to 1e-12;
/// with bf16 and fp16 only values are short: arithmetic, statistics and gradients are fp32.
enum class Storage { fp32, fp64, bf16, fp16 };

/// Bytes of one stored element. Throws std::invalid_argument for a value outside the enumeration.
std::size_t bytes_per_element(Storage storage);

/// Format of gradients, statistics and depth parameters that belong to values stored as `storage`.
Storage gradient_storage(Storage storage);

/// "fp32", "fp64", "bf16", "fp16". Throws std::invalid_argument for a value outside the enumeration.
std::string_view to_string(Storage storage);

/// A writable [tokens, width] tensor of format `storage`, contiguous and row-major.
struct View {
  void* data = nullptr;
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  Storage storage = Storage::fp32;

  std::int64_t num_elements() const { return tokens * width; }
};

/// The read-only twin of `View`.
struct ConstView {
  const void* data = nullptr;
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  Storage storage = Storage::fp32;

  ConstView() = default;
  ConstView(const void* data_in, std::int64_t tokens_in, std::int64_t width_in, Storage storage_in)
      : data(data_in), tokens(tokens_in), width(width_in), storage(storage_in) {}
  ConstView(const View& view) : data(view.data), tokens(view.tokens), width(view.width), storage(view.storage) {}

  std::int64_t num_elements() const { return tokens * width; }
};

/// The elements as T (float, double, or Bf16 and Fp16 of number_formats.hpp). REQUIRES: T is the C++ type of
/// `view.storage`.
template <class T>
const T* elements(const ConstView& view) {
  return static_cast<const T*>(view.data);
}
template <class T>
T* elements(const View& view) {
  return static_cast<T*>(view.data);
}

}  // namespace plumb

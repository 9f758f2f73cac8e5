// SPDX-License-Identifier: Apache-2.0
// buffer.hpp (private): memory that only grows, so that a repeated step allocates nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace plumb::kernels_detail {

class Buffer {
 public:
  /// Makes room for `bytes`, aligned to a cache line. Growing discards the contents; fresh memory is not cleared.
  void reserve(std::size_t bytes) {
    if (bytes > capacity_bytes_) {
      memory_.reset();
      memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
      capacity_bytes_ = bytes;
    }
  }

  std::byte* at(std::size_t offset_bytes) const { return memory_.get() + offset_bytes; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t capacity_bytes_ = 0;
};

}  // namespace plumb::kernels_detail

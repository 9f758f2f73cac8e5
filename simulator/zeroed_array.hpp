// SPDX-License-Identifier: Apache-2.0
//
// zeroed_array.hpp (private): a long array of which perhaps only parts are used; what is not touched takes no memory.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace plumb {

// Of plain records for which all bytes zero mean the beginning.
template <class T>
class ZeroedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  explicit ZeroedArray(std::size_t size = 0) : size_(size) {
    if (size == 0) return;
    entries_.reset(static_cast<T*>(std::calloc(size, sizeof(T))));
    if (!entries_) throw std::bad_alloc();
  }
  T& operator[](std::size_t i) { return entries_.get()[i]; }
  const T& operator[](std::size_t i) const { return entries_.get()[i]; }
  const T* data() const { return entries_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(T* entries) const { std::free(entries); }
  };
  std::unique_ptr<T[], Free> entries_;
  std::size_t size_ = 0;
};

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "allocation_count.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> counting{false};
std::atomic<std::uint64_t> counted{0};

void* take(std::size_t size_bytes, std::size_t alignment_bytes) {
  if (counting.load(std::memory_order_relaxed)) counted.fetch_add(1, std::memory_order_relaxed);
  const std::size_t size = size_bytes == 0 ? 1 : size_bytes;
  void* const memory =
      alignment_bytes <= alignof(std::max_align_t)
          ? std::malloc(size)
          : std::aligned_alloc(alignment_bytes, (size + alignment_bytes - 1) / alignment_bytes * alignment_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size_bytes) { return take(size_bytes, 1); }
void* operator new[](std::size_t size_bytes) { return take(size_bytes, 1); }
void* operator new(std::size_t size_bytes, std::align_val_t alignment) {
  return take(size_bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size_bytes, std::align_val_t alignment) {
  return take(size_bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace plumb::test {

void count_allocations(bool on) {
  if (on) counted.store(0);
  counting.store(on);
}

std::uint64_t num_allocations() { return counted.load(); }

}  // namespace plumb::test

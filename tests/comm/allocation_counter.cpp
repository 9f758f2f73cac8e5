// SPDX-License-Identifier: Apache-2.0
#include "allocation_counter.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local std::uint64_t num_allocations = 0;

void* counted_or_null(std::size_t size_bytes) noexcept {
  ++num_allocations;
  return std::malloc(size_bytes == 0 ? 1 : size_bytes);
}

void* counted(std::size_t size_bytes) {
  if (void* memory = counted_or_null(size_bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size_bytes) { return counted(size_bytes); }
void* operator new[](std::size_t size_bytes) { return counted(size_bytes); }
void* operator new(std::size_t size_bytes, const std::nothrow_t&) noexcept { return counted_or_null(size_bytes); }
void* operator new[](std::size_t size_bytes, const std::nothrow_t&) noexcept { return counted_or_null(size_bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace plumb::testing {

std::uint64_t num_allocations_of_this_thread() noexcept { return num_allocations; }

}  // namespace plumb::testing

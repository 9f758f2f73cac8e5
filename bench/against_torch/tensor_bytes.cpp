// SPDX-License-Identifier: Apache-2.0
#include "tensor_bytes.hpp"

#include <algorithm>
#include <atomic>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>

namespace plumb::bench {
namespace {

std::atomic<std::size_t> live{0};
std::atomic<std::size_t> peak{0};
std::size_t at_last_call = 0;

struct Counting final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) const override {
    void* const data = c10::alloc_cpu(bytes);
    const std::size_t now = live += data == nullptr ? 0 : malloc_usable_size(data);
    peak = std::max(peak.load(), now);
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  static void release(void* data) {
    live -= data == nullptr ? 0 : malloc_usable_size(data);
    c10::free_cpu(data);
  }
};

}  // namespace

void count_tensor_bytes() { c10::SetCPUAllocator(new Counting, 255); }

std::size_t peak_tensor_bytes() {
  const std::size_t highest = peak.load() - at_last_call;
  at_last_call = live.load();
  peak = at_last_call;
  return highest;
}

}  // namespace plumb::bench

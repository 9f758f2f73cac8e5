// SPDX-License-Identifier: Apache-2.0
// shared_memory.hpp: one block of zeroed memory that threads or processes of one machine look at together.
//
// Across processes it is made by rank 0, mapped by everybody under a name that only they know, and nameless afterwards,
// so nothing is left behind however the job ends. It is NOT initialised beyond zeroes and locks nothing. Addresses
// differ between processes: put no pointers in.
#pragma once

#include <chrono>
#include <cstddef>

#include "plumb/comm/control.hpp"

namespace plumb {

class SharedMemory {
 public:
  /// For the threads of this process.
  explicit SharedMemory(std::size_t size_bytes);
  /// Collective over the job, equal sizes. TransportError (net) on every rank when one of them cannot map it.
  SharedMemory(ControlPlane& control, std::size_t size_bytes, std::chrono::nanoseconds limit);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Aligned to a page.
  std::byte* data() const noexcept { return data_; }
  std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace plumb

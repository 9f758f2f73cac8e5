// SPDX-License-Identifier: Apache-2.0
#include "prefault.hpp"

#include <cstdint>

#include <sys/mman.h>
#include <unistd.h>

namespace plumb {

void prefault(void* begin, std::size_t num_bytes) {
#ifdef MADV_POPULATE_WRITE
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = (address + page - 1) / page * page;
  const std::uintptr_t end = (address + num_bytes) / page * page;
  if (end > first) madvise(reinterpret_cast<void*>(first), end - first, MADV_POPULATE_WRITE);
#else
  static_cast<void>(begin);
  static_cast<void>(num_bytes);
#endif
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "plumb/comm/shared_memory.hpp"

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace plumb {
namespace {

std::byte* map(int file, std::size_t size_bytes) {
  const int kind = file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* address = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, kind, file, 0);
  return address == MAP_FAILED ? nullptr : static_cast<std::byte*>(address);
}

// The name of a new block with `size_bytes` reserved, or an empty name and errno.
std::string make_block(std::size_t size_bytes, std::byte*& data) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string name = fmt::format("/plumb-{}-{}", getpid(), attempt);
    const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0 && errno == EEXIST) continue;
    if (file < 0) return {};
    // Reserved now: a full /dev/shm must be an error here, not a bus error on first touch.
    const int error = posix_fallocate(file, 0, static_cast<off_t>(size_bytes));
    if (error == 0) data = map(file, size_bytes);
    if (error != 0) errno = error;
    close(file);
    if (data != nullptr) return name;
    shm_unlink(name.c_str());
    return {};
  }
  return {};
}

std::byte* open_block(const std::string& name, std::size_t size_bytes) {
  const int file = shm_open(name.c_str(), O_RDWR, 0600);
  if (file < 0) return nullptr;
  std::byte* data = map(file, size_bytes);
  close(file);
  return data;
}

}  // namespace

SharedMemory::SharedMemory(std::size_t size_bytes) : data_(map(-1, size_bytes)), size_bytes_(size_bytes) {
  if (data_ == nullptr) throw std::bad_alloc();
}

SharedMemory::SharedMemory(ControlPlane& control, std::size_t size_bytes, std::chrono::nanoseconds limit)
    : size_bytes_(size_bytes) {
  std::string name;
  std::string fault;
  if (control.rank().value == 0) {
    name = make_block(size_bytes, data_);
    if (data_ == nullptr) fault = std::strerror(errno);
  }
  try {
    const std::string common = control.exchange(name, limit)[0];
    if (control.rank().value != 0 && !common.empty()) {
      data_ = open_block(common, size_bytes);
      if (data_ == nullptr) fault = std::strerror(errno);
    }
    const std::vector<std::string> faults = control.exchange(fault, limit);
    if (!name.empty()) shm_unlink(name.c_str());
    name.clear();
    for (std::size_t r = 0; r < faults.size(); ++r) {
      if (faults[r].empty()) continue;
      TransportFault refused;
      refused.kind = TransportErrorKind::net;
      refused.rank = control.rank();
      refused.peer = PeerId{static_cast<std::int32_t>(r)};
      refused.text = fmt::format("rank {} cannot share {} bytes of memory: {}; all ranks must run on one machine", r,
                                 size_bytes, faults[r]);
      throw TransportError(std::move(refused));
    }
  } catch (...) {
    if (!name.empty()) shm_unlink(name.c_str());
    if (data_ != nullptr) munmap(data_, size_bytes_);
    throw;
  }
}

SharedMemory::~SharedMemory() { munmap(data_, size_bytes_); }

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "train_lm/durable_file.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "exit.hpp"

namespace plumb::lm {

namespace {

[[noreturn]] void fail(const std::string& path, const char* doing) {
  throw cli::EnvironmentError(fmt::format("{}: {} failed: {}", path, doing, std::strerror(errno)));
}

// Closes what it opened, whatever happens in between.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : path_(path), number_(::open(path.c_str(), flags, 0666)) {
    if (number_ < 0) {
      fail(path_, "opening");
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(number_); }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(number_, bytes.data(), bytes.size());
      if (written < 0 && errno != EINTR) {
        fail(path_, "writing");
      }
      bytes.remove_prefix(static_cast<std::size_t>(written < 0 ? 0 : written));
    }
  }
  void sync() {
    if (::fsync(number_) != 0) {
      fail(path_, "syncing");
    }
  }

 private:
  std::string path_;
  int number_;
};

}  // namespace

void write_durably(const std::string& path, std::string_view bytes) {
  // Ranks of one job may write equal parts at once, so the temporary name is the process's own.
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  try {
    Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    file.write(bytes);
    file.sync();
    if (std::rename(temporary.c_str(), path.c_str()) != 0) {
      fail(path, "renaming");
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  Descriptor(std::filesystem::path(path).parent_path().string(), O_RDONLY | O_DIRECTORY | O_CLOEXEC).sync();
}

}  // namespace plumb::lm

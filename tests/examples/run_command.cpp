// SPDX-License-Identifier: Apache-2.0
#include "run_command.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <sys/wait.h>
#include <unistd.h>

namespace plumb::lm::test {

std::string Ended::last_line() const {
  const std::size_t end = err.find_last_not_of('\n');
  const std::size_t begin = err.rfind('\n', end);
  const std::size_t first = begin == std::string::npos ? 0 : begin + 1;
  return end == std::string::npos ? "" : err.substr(first, end + 1 - first);
}

std::string temporary(const std::string& name) {
  return (std::filesystem::temp_directory_path() / ("plumb-train-" + std::to_string(::getpid()) + name)).string();
}

Ended shell(const std::string& command) {
  const std::string err = temporary(".err");
  Ended ended;
  FILE* const pipe = ::popen((command + " 2>" + err).c_str(), "r");
  if (pipe == nullptr) {
    throw std::runtime_error("cannot start a shell");
  }
  char buffer[4096];
  while (const std::size_t count = std::fread(buffer, 1, sizeof(buffer), pipe)) {
    ended.out.append(buffer, count);
  }
  const int status = ::pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::ifstream file(err);
  ended.err = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::filesystem::remove(err);
  return ended;
}

}  // namespace plumb::lm::test

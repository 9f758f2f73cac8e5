// SPDX-License-Identifier: Apache-2.0
#include "sibling.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

namespace plumb::bench {

int run_sibling(const std::string& name, const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / name).string();
  std::vector<std::string> passed = {name};
  passed.insert(passed.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : passed) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  if (errno == ENOENT) {
    fmt::print(stderr, "config: no {} beside this program ({}): it is built where CMake finds libtorch\n", name,
               self.parent_path().string());
  } else {
    fmt::print(stderr, "config: cannot start {}: {}\n", program, std::strerror(errno));
  }
  return 3;
}

}  // namespace plumb::bench

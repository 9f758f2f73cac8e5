// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "commands.hpp"
#include "exit.hpp"

namespace plumb::cli {

void exec_sibling(const Options& options) {
  const std::string program = "plumb-" + options.subcommand;
  std::vector<std::string> arguments{program};
  arguments.insert(arguments.end(), options.rest.begin(), options.rest.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const std::string beside = (self.parent_path() / program).string();
    execv(beside.c_str(), argv.data());
  }
  execvp(program.c_str(), argv.data());
  throw EnvironmentError(
      fmt::format("cannot start {}: {}; it does not stand beside plumb: not built, or without its libraries", program,
                  std::strerror(errno)));
}

}  // namespace plumb::cli

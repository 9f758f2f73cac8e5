// SPDX-License-Identifier: Apache-2.0
//
// run_command.hpp: starts a program as a user would and keeps everything it said.
#pragma once

#include <string>

namespace plumb::lm::test {

struct Ended {
  int code = -1;  // -1: ended by a signal
  std::string out;
  std::string err;

  std::string last_line() const;  // of stderr
};

// A path in the folder for temporary files that no other process uses.
std::string temporary(const std::string& name);

Ended shell(const std::string& command);

}  // namespace plumb::lm::test

// SPDX-License-Identifier: Apache-2.0
//
// support.hpp (tests): runs the real plumb command and hands back everything a script would see.
#pragma once

#include <string>

namespace plumb::test {

struct Run {
  int exit_code = 0;
  std::string out;
  std::string err;

  std::string last_error_line() const;
  std::string reason() const;  // the word before the colon of that line
};

// `arguments` goes through the shell, in an empty directory of its own; `input` becomes stdin.
Run run_plumb(const std::string& arguments, const std::string& input = "");

// A run that must succeed and say nothing on stderr: what it printed.
std::string fine(const std::string& arguments);

// Writes a file into that directory and returns its name.
std::string scratch_file(const std::string& name, const std::string& content);

// Bad input: exit code 2, nothing on stdout, one line on stderr that begins with its kind and holds `names`.
void require_refused(const std::string& arguments, const std::string& names, const std::string& input = "");

}  // namespace plumb::test

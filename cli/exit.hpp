// SPDX-License-Identifier: Apache-2.0
//
// exit.hpp (private): the exit codes of every program here, and the typed ways to get there.
#pragma once

#include <stdexcept>
#include <string>

namespace plumb::cli {

inline constexpr int exit_fine = 0;
inline constexpr int exit_no = 1;           // the answer is "no"
inline constexpr int exit_bad_input = 2;    // one clear line on stderr
inline constexpr int exit_environment = 3;  // a peer or the environment failed

// The command line itself is wrong; the last stderr line begins with "usage".
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Something outside failed: a missing program, a file that cannot be written.
struct EnvironmentError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The problem is legal but too large for this machine; the last stderr line begins with "memory".
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace plumb::cli

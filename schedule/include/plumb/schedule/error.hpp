// SPDX-License-Identifier: Apache-2.0
//
// error.hpp: the one exception for bad input.
//
// Everything a user can get wrong (a flag, a layout, a schedule file) ends as an InputError whose text is one line:
// what is wrong, where, and the nearest legal value. The command line turns it into exit code 2. It is NOT used for
// broken invariants (see invariant.hpp) nor for failing peers.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace plumb {

// Control characters become \xNN: what a file or a path holds does not break the line that names it.
std::string one_line(std::string_view text);

class InputError : public std::invalid_argument {
 public:
  explicit InputError(std::string_view why) : std::invalid_argument(one_line(why)) {}
};

}  // namespace plumb

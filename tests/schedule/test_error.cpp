// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "plumb/schedule/error.hpp"
#include "support/catch.hpp"

using namespace plumb;

TEST_CASE("what is wrong with an input is said in one line, whatever the input holds", "[schedule]") {
  CHECK(std::string(InputError("no rank 'a\nb\t\x7f' here").what()) == "no rank 'a\\x0ab\\x09\\x7f' here");
  CHECK(std::string(InputError(std::string("zero \0 byte", 11)).what()) == "zero \\x00 byte");
  CHECK(one_line("\xc3\xa9 stays, and so does \\n") == "\xc3\xa9 stays, and so does \\n");
  CHECK(one_line("").empty());
}

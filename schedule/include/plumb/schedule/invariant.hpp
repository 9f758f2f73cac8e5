// SPDX-License-Identifier: Apache-2.0
//
// invariant.hpp: checks of what must hold if this library is right.
//
// A broken invariant is our fault, never the user's: it prints the sentence with its values and aborts. Bad input must
// be refused earlier with an InputError. The checks stay on in release builds; keep them out of inner loops.
#pragma once

#include <string_view>

namespace plumb {

// Prints "plumb: broken invariant: <text>" to stderr and aborts.
[[noreturn]] void broken_invariant(std::string_view text);

// `text` is built by a callable so that the good path formats nothing:
//   require(got == expected, [&] { return fmt::format("chunk {} got {} of {}", ...); });
template <class MakeText>
void require(bool holds, MakeText&& make_text) {
  if (!holds) [[unlikely]] {
    broken_invariant(make_text());
  }
}

}  // namespace plumb

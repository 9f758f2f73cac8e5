// SPDX-License-Identifier: Apache-2.0
//
// expect.hpp (tests): what holds of every reader of foreign text, whatever the bytes.
#pragma once

#include <cstdlib>
#include <string_view>

#include "plumb/schedule/error.hpp"

namespace plumb::fuzz {

inline void expect(bool holds) {
  if (!holds) std::abort();
}

// A refusal is one readable line.
inline void expect_line(const InputError& error) {
  const std::string_view text = error.what();
  expect(!text.empty());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    expect(byte >= 0x20 && byte != 0x7f);
  }
}

// Reads, or is refused in one line.
template <class Read>
void try_to(Read&& read) {
  try {
    read();
  } catch (const InputError& error) {
    expect_line(error);
  }
}

}  // namespace plumb::fuzz

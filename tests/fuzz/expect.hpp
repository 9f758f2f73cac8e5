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

// A refusal is one line.
inline void expect_line(const InputError& error) {
  const std::string_view text = error.what();
  expect(!text.empty() && text.find('\n') == std::string_view::npos);
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

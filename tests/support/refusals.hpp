// SPDX-License-Identifier: Apache-2.0
//
// refusals.hpp (tests): what is said of bad input, and input made bad.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plumb/schedule/error.hpp"
#include "support/catch.hpp"

namespace plumb::test {

// The text of the InputError that `call` throws; empty: it throws none.
template <class Call>
std::string refusal_of(Call&& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

// What `call` returns; nothing: it throws an InputError.
template <class Call>
auto if_legal(Call&& call) -> std::optional<decltype(call())> {
  try {
    return call();
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// With `by` for the first `what`, which must be there.
inline std::string replaced(std::string text, std::string_view what, std::string_view by) {
  const std::size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

}  // namespace plumb::test

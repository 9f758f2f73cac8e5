// SPDX-License-Identifier: Apache-2.0
#include "token_reader.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "quote.hpp"

namespace plumb {
namespace {

constexpr std::int32_t max_chunk = 65535;
constexpr std::int32_t max_microbatch = (1 << 20) - 1;

bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; }

template <class Predicate>
std::string_view leading(std::string_view text, Predicate predicate) {
  const auto end = std::find_if_not(text.begin(), text.end(), predicate);
  return text.substr(0, static_cast<std::size_t>(end - text.begin()));
}

}  // namespace

ChunkId TokenReader::chunk() { return ChunkId(number("a chunk number", max_chunk)); }

Microbatch TokenReader::microbatch() { return Microbatch(number("a microbatch number", max_microbatch)); }

std::string_view TokenReader::type() {
  const std::string_view type = leading(rest_, is_letter);
  rest_.remove_prefix(type.size());
  return type;
}

void TokenReader::end(std::string_view what) const {
  if (!rest_.empty()) fail(fmt::format("{} stands after the {}", quoted(rest_), what));
}

void TokenReader::fail(std::string_view why) const {
  throw InputError(fmt::format("token {}: {} (expected a form like {})", quoted(token_), why, form_));
}

std::int32_t TokenReader::number(std::string_view what, std::int32_t max) {
  const std::string_view digits = leading(rest_, is_digit);
  if (digits.empty()) fail(fmt::format("{} is missing{}", what, rest_.empty() ? "" : " before " + quoted(rest_)));
  if (digits.size() > 1 && digits.front() == '0') fail(fmt::format("{} has leading zeros", what));
  std::int64_t value = 0;
  for (const char c : digits) {
    value = value * 10 + (c - '0');
    if (value > max) fail(fmt::format("{} is above {}", what, max));
  }
  rest_.remove_prefix(digits.size());
  return static_cast<std::int32_t>(value);
}

}  // namespace plumb

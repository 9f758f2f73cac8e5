// SPDX-License-Identifier: Apache-2.0
//
// decimal.hpp (private): whole numbers are read as people write them.
//
// CLI11 reads 010 as octal 8, 0x4 as 4 and clamps what does not fit; none of that is what somebody meant.
#pragma once

#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

namespace plumb::cli {

// What a flag can be at all, whatever else is given.
struct LegalRange {
  std::string_view flag;
  std::int64_t least;
  std::int64_t most;
};

// What is wrong with a number that no variable holds: the flag's own limits where they are known, none of a type.
inline std::string range_fault(std::span<const LegalRange> ranges, const std::string& flag, const std::string& text) {
  for (const LegalRange& range : ranges) {
    if (range.flag == flag) {
      return text + " is out of range: legal are " + std::to_string(range.least) + " to " + std::to_string(range.most);
    }
  }
  return text + " is out of range: it is " + (text.starts_with('-') ? "smaller" : "larger") +
         " than any number that this flag takes";
}

// An empty text, or what is wrong with `text` as a number from `Number`'s range.
template <class Number>
std::string decimal_fault(std::span<const LegalRange> ranges, const std::string& flag, const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return range_fault(ranges, flag, text);
  const std::string digits = text.substr(text.starts_with('-') ? 1 : 0);
  const bool leading_zero = digits.size() > 1 && digits[0] == '0';
  if (error != std::errc() || end != text.data() + text.size() || leading_zero) {
    return "'" + text + "' is not a whole decimal number";
  }
  return {};
}

// Call after all options have been added: every option that takes an int or an unsigned 64-bit number is checked.
// `ranges` outlive the app.
inline void require_decimals(CLI::App& app, std::span<const LegalRange> ranges = {}) {
  for (CLI::Option* option : app.get_options()) {
    const std::string flag = option->get_name();
    const std::string type = option->get_type_name();
    if (type == "INT") {
      option->check([=](const std::string& text) { return decimal_fault<int>(ranges, flag, text); });
    } else if (type == "UINT") {
      option->check([=](const std::string& text) { return decimal_fault<std::uint64_t>(ranges, flag, text); });
    }
  }
}

}  // namespace plumb::cli

// SPDX-License-Identifier: Apache-2.0
#include "command.hpp"

#include <charconv>
#include <cstdio>

#include <fmt/format.h>

namespace plumb::bench {

int refuse(std::string_view command, std::string_view why) {
  fmt::print(stderr, "usage: {}; see {} --help\n", why, command);
  return 2;
}

const std::string& Flag::value() {
  if (at_ + 1 == arguments_.size()) throw UsageError(fmt::format("{} needs a value", name_));
  return arguments_[++at_];
}

std::int64_t Flag::number(std::int64_t most) {
  const std::string& text = value();
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1 || number > most)
    throw not_legal(text, fmt::format("1..{}", most));
  return number;
}

UsageError Flag::not_legal(const std::string& value, std::string_view legal) const {
  return UsageError(fmt::format("{} is '{}'; legal: {}", name_, value, legal));
}

std::optional<int> read_flags(const std::vector<std::string>& arguments, std::string_view command,
                              const char* usage_text, const std::function<bool(Flag&)>& take) try {
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    Flag flag(arguments, at);
    if (flag.is("--help") || flag.is("-h")) {
      fmt::print("{}", usage_text);
      return 0;
    }
    if (!take(flag)) return refuse(command, fmt::format("unknown argument '{}'", arguments[at]));
  }
  return std::nullopt;
} catch (const std::invalid_argument& error) {
  return refuse(command, error.what());
}

int end_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  fmt::print(stderr, "config: cannot write to standard output\n");
  return 3;
}

}  // namespace plumb::bench

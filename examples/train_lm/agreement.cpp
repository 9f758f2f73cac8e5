// SPDX-License-Identifier: Apache-2.0
#include "train_lm/agreement.hpp"

#include <cstddef>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb::lm {

namespace {

// Fields and values contain neither of the two separators.
std::string encode(const Facts& facts) {
  std::string text;
  for (const auto& [field, value] : facts) {
    text += field + '\x1f' + value + '\x1e';
  }
  return text;
}

Facts decode(const std::string& text) {
  Facts facts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t middle = text.find('\x1f', begin);
    const std::size_t end = text.find('\x1e', middle);
    facts.emplace_back(text.substr(begin, middle - begin), text.substr(middle + 1, end - middle - 1));
    begin = end + 1;
  }
  return facts;
}

}  // namespace

void agree_on_errors(ControlPlane* control, const std::string& error) {
  const std::vector<std::string> errors =
      control == nullptr ? std::vector{error} : control->exchange(error, kControlLimit);
  for (const std::string& line : errors) {
    if (!line.empty()) {
      throw InputError(line);
    }
  }
}

Ending agree_on_ending(ControlPlane* control, const Ending& mine) {
  if (control == nullptr) {
    return mine;
  }
  for (const std::string& text : control->exchange(fmt::format("{} {}", mine.code, mine.line), kControlLimit)) {
    const Ending ending{std::stoi(text), text.substr(text.find(' ') + 1)};
    if (ending.code != 0) {
      return ending;
    }
  }
  return {};
}

void agree_on_facts(ControlPlane* control, const Facts& facts) {
  if (control == nullptr) {
    return;
  }
  const std::vector<std::string> all = control->exchange(encode(facts), kControlLimit);
  const Facts first = decode(all.front());
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const Facts other = decode(all[rank]);
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (i >= other.size() || other[i] != first[i]) {
        throw InputError(
            fmt::format("ranks were started with different flags: {} is '{}' on rank 0 and '{}' on rank {}",
                        first[i].first, first[i].second, i < other.size() ? other[i].second : "", rank));
      }
    }
  }
}

}  // namespace plumb::lm

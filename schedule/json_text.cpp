// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/json_text.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "quote.hpp"

namespace plumb {
namespace {

class Scanner {
 public:
  Scanner(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  void run() {
    for (std::size_t at = text_.find_first_of(marks); at < text_.size(); at = text_.find_first_of(marks, at)) {
      switch (text_[at]) {
        case '"':
          at = after_string(at);
          continue;
        case '{':
        case '[':
          open(at);
          break;
        case '}':
        case ']':
          close();
          break;
        case ',':
          if (!open_.empty()) open_.back().key_is_due = open_.back().is_object;
          break;
        default:
          break;
      }
      ++at;
    }
  }

 private:
  static constexpr std::string_view marks = "\"{}[],";

  struct Open {
    bool is_object = false;
    bool key_is_due = false;
    std::size_t first_key = 0;
  };

  void open(std::size_t at) {
    if (open_.size() == max_json_depth) {
      throw InputError(fmt::format("{}: arrays and objects are nested deeper than {} at byte {} of {}", name_,
                                   max_json_depth, at + 1, text_.size()));
    }
    const bool is_object = text_[at] == '{';
    open_.push_back({is_object, is_object, keys_.size()});
  }

  void close() {
    if (open_.empty()) return;
    const auto first = keys_.begin() + static_cast<std::ptrdiff_t>(open_.back().first_key);
    std::sort(first, keys_.end(),
              [](std::string_view a, std::string_view b) { return a != b ? a < b : a.data() < b.data(); });
    const auto twice = std::adjacent_find(first, keys_.end());
    if (twice != keys_.end()) {
      throw InputError(fmt::format("{}: key {} stands a second time in its object, at byte {} of {}", name_,
                                   quoted(*twice), std::next(twice)->data() - text_.data(), text_.size()));
    }
    keys_.erase(first, keys_.end());
    open_.pop_back();
  }

  // Behind the string that opens at `at`.
  std::size_t after_string(std::size_t at) {
    const std::size_t begin = at + 1;
    std::size_t end = text_.find_first_of("\"\\", begin);
    while (end < text_.size() && text_[end] == '\\')
      end = text_.find_first_of("\"\\", end + 2);
    if (end >= text_.size()) return text_.size();
    if (!open_.empty() && open_.back().key_is_due) {
      open_.back().key_is_due = false;
      keys_.push_back(text_.substr(begin, end - begin));
    }
    return end + 1;
  }

  std::string_view text_;
  std::string_view name_;
  std::vector<Open> open_;
  std::vector<std::string_view> keys_;  // of all open objects, the outermost first
};

}  // namespace

void require_plain_json(std::string_view text, std::string_view name) { Scanner(text, name).run(); }

}  // namespace plumb

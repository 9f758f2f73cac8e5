// SPDX-License-Identifier: Apache-2.0
//
// token_reader.hpp (private): takes one schedule token apart, strictly, and words the refusals.
#pragma once

#include <cstdint>
#include <string_view>

#include "plumb/schedule/ids.hpp"

namespace plumb {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

class TokenReader {
 public:
  // `token` is the whole cell and `form` what a good one looks like, both for the message; `text` is what is read: the
  // cell, or one half of a pair.
  TokenReader(std::string_view token, std::string_view form, std::string_view text)
      : token_(token), form_(form), rest_(text) {}

  // What a Layout can hold at all; the exact range is the schedule's to check. ASCII digits without leading zeros.
  ChunkId chunk();
  Microbatch microbatch();

  // Letters and underscores, possibly none.
  std::string_view type();

  // Throws unless everything has been read. `what` stands before.
  void end(std::string_view what) const;

  bool at_end() const { return rest_.empty(); }

  [[noreturn]] void fail(std::string_view why) const;

 private:
  std::int32_t number(std::string_view what, std::int32_t max);

  std::string_view token_;
  std::string_view form_;
  std::string_view rest_;
};

}  // namespace plumb

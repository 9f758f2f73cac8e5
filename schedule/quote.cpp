// SPDX-License-Identifier: Apache-2.0
#include "quote.hpp"

#include <fmt/format.h>

namespace plumb {

std::string quoted(std::string_view text) {
  constexpr std::size_t max_bytes = 40;
  std::string out = "\"";
  for (const char c : text.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += text.size() > max_bytes ? "...\"" : "\"";
  return out;
}

}  // namespace plumb

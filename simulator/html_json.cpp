// SPDX-License-Identifier: Apache-2.0
#include "html_json.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "html_bytes.hpp"
#include "svg_text.hpp"

namespace plumb {
namespace {

void append_escaped(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    const bool is_markup = c == '<' || c == '>' || c == '&';
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F || is_markup) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(byte));
    } else if (byte < 0x80) {
      out += c;
    } else if (const std::size_t length = utf8_length(text, i); length > 0) {
      out += text.substr(i, length);
      i += length - 1;
    } else {
      out += '?';
    }
  }
  out += '"';
}

}  // namespace

void HtmlJson::key(std::string_view name) {
  separate();
  append_escaped(text_, name);
  text_ += ':';
  needs_comma_ = false;
}

void HtmlJson::add(std::int64_t value) {
  separate();
  text_ += fmt::to_string(value);
}

void HtmlJson::add(double value) {
  separate();
  text_ += std::isfinite(value) ? fmt::format("{}", value) : "null";
}

void HtmlJson::add(bool value) {
  separate();
  text_ += value ? "true" : "false";
}

void HtmlJson::add(std::string_view value) {
  separate();
  append_escaped(text_, value);
}

void HtmlJson::begin(char bracket) {
  separate();
  text_ += bracket;
  needs_comma_ = false;
}

void HtmlJson::end(char bracket) {
  text_ += bracket;
  needs_comma_ = true;
}

void HtmlJson::separate() {
  if (needs_comma_) text_ += ',';
  needs_comma_ = true;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t here = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < here ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      out += k <= here ? letters[group >> (18 - 6 * k) & 0x3F] : '=';
  }
  return out;
}

}  // namespace plumb

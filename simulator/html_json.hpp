// SPDX-License-Identifier: Apache-2.0
//
// html_json.hpp (private): a few facts as JSON within a <script> element.
//
// Numbers are exact: integers in full, doubles with the fewest digits that read back to the same one, null for what is
// not finite. In strings everything that means something to HTML is escaped, so no name can end the element.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace plumb {

class HtmlJson {
 public:
  void begin_object() { begin('{'); }
  void end_object() { end('}'); }
  void begin_array() { begin('['); }
  void end_array() { end(']'); }
  void key(std::string_view name);  // the next value is its
  void add(std::int64_t value);
  void add(double value);
  void add(bool value);
  void add(std::string_view value);
  void add(const char* value) { add(std::string_view(value)); }
  template <class Value>
  void add(std::string_view name, const Value& value) {
    key(name);
    add(value);
  }
  template <class List>
  void add_list(std::string_view name, const List& values) {
    key(name);
    begin_array();
    for (const auto& value : values)
      add(value);
    end_array();
  }
  std::string take() { return std::move(text_); }

 private:
  void begin(char bracket);
  void end(char bracket);
  void separate();

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace plumb

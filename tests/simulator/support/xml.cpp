// SPDX-License-Identifier: Apache-2.0
#include "simulator/support/xml.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace plumb::test {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  XmlDocument parse() {
    XmlDocument document;
    try {
      require_utf8();
      if (text_.starts_with("<?xml")) at_ = text_.find("?>") + 2;
      std::vector<int> open;
      bool had_root = false;
      while (at_ < text_.size()) {
        if (text_[at_] != '<') {
          const std::size_t end = std::min(text_.find('<', at_), text_.size());
          const std::string chunk = unescaped(text_.substr(at_, end - at_));
          if (open.empty() && chunk.find_first_not_of(" \n") != std::string::npos) fail("text outside the root");
          if (!open.empty()) document.elements[static_cast<std::size_t>(open.back())].text += chunk;
          at_ = end;
        } else if (text_.substr(at_, 2) == "</") {
          at_ += 2;
          const std::string closing = name();
          if (open.empty() || document.elements[static_cast<std::size_t>(open.back())].name != closing) {
            fail("</" + closing + "> closes nothing");
          }
          open.pop_back();
          expect('>');
        } else {
          ++at_;
          if (open.empty() && std::exchange(had_root, true)) fail("a second root");
          XmlElement element{name(), {}, {}, open.empty() ? -1 : open.back()};
          bool closed = false;
          while (true) {
            const bool blank = skip_blanks();
            if (text_.substr(at_, 2) == "/>") {
              at_ += 2;
              closed = true;
              break;
            }
            if (text_.substr(at_, 1) == ">") {
              ++at_;
              break;
            }
            if (!blank) fail("no blank before an attribute");
            const std::string key = name();
            expect('=');
            expect('"');
            const std::size_t end = text_.find('"', at_);
            if (end == text_.npos) fail("an attribute without end");
            const std::string_view value = text_.substr(at_, end - at_);
            if (value.find('<') != value.npos) fail("< in an attribute");
            if (!element.attributes.emplace(key, unescaped(value)).second) fail(key + " twice");
            at_ = end + 1;
          }
          document.elements.push_back(std::move(element));
          if (!closed) open.push_back(static_cast<int>(document.elements.size()) - 1);
        }
      }
      if (!open.empty() || !had_root) fail("not all is closed");
    } catch (const std::runtime_error& error) {
      document.fault = error.what();
    }
    return document;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(what + " at byte " + std::to_string(at_));
  }
  void expect(char c) {
    if (at_ >= text_.size() || text_[at_] != c) fail(std::string("no ") + c);
    ++at_;
  }
  bool skip_blanks() {
    const std::size_t before = at_;
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n'))
      ++at_;
    return at_ > before;
  }
  std::string name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '-'))
      ++at_;
    if (at_ == begin) fail("a name is missing");
    return std::string(text_.substr(begin, at_ - begin));
  }
  std::string unescaped(std::string_view raw) const {
    static const std::map<std::string_view, char> entities = {
        {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    std::string out;
    for (std::size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '&') {
        out += raw[i];
        continue;
      }
      const std::size_t end = raw.find(';', i);
      const auto entity = end == raw.npos ? entities.end() : entities.find(raw.substr(i + 1, end - i - 1));
      if (entity == entities.end()) fail("a bare &");
      out += entity->second;
      i = end;
    }
    return out;
  }
  void require_utf8() {
    std::size_t follow = 0;
    for (at_ = 0; at_ < text_.size(); ++at_) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (follow > 0) {
        if ((c & 0xC0) != 0x80) fail("broken UTF-8");
        --follow;
      } else if (c >= 0x80) {
        follow = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
        if (c < 0xC2 || c > 0xF4) fail("broken UTF-8");
      } else if (c < 0x20 && c != '\n') {
        fail("a control character");
      }
    }
    if (follow > 0) fail("broken UTF-8");
    at_ = 0;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

XmlDocument parse_xml(std::string_view text) { return Parser(text).parse(); }

}  // namespace plumb::test

// SPDX-License-Identifier: Apache-2.0
//
// xml.hpp (tests): is a text well-formed XML, as far as a drawing uses it, and which elements does it have?
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace plumb::test {

struct XmlElement {
  std::string name;
  std::map<std::string, std::string> attributes;  // unescaped
  std::string text;                               // of the element itself, unescaped
  int parent = -1;
};

// Throws where there is none.
inline double number(const XmlElement& element, const std::string& key) {
  return std::stod(element.attributes.at(key));
}

struct XmlDocument {
  std::string fault;  // empty: well-formed
  std::vector<XmlElement> elements;
};

// One root, tags nest, attributes are quoted and not given twice, < and & are escaped, entities are XML's own, and the
// text is UTF-8 without control characters.
XmlDocument parse_xml(std::string_view text);

}  // namespace plumb::test

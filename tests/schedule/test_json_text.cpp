// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "plumb/schedule/error.hpp"
#include "plumb/schedule/json_text.hpp"
#include "support/catch.hpp"
#include "support/refusals.hpp"

using plumb::max_json_depth;
using plumb::require_plain_json;

namespace {

std::string json_refusal(const std::string& text) {
  return plumb::test::refusal_of([&] { require_plain_json(text, "x.json"); });
}

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

}  // namespace

TEST_CASE("JSON may be nested as deep as the limit and no deeper", "[schedule]") {
  CHECK(json_refusal(nested(max_json_depth)).empty());
  CHECK(json_refusal(nested(max_json_depth) + nested(max_json_depth)).empty());
  CHECK(json_refusal(nested(max_json_depth + 1)) ==
        "x.json: arrays and objects are nested deeper than 64 at byte 65 of 130");
  std::string objects;
  for (int i = 0; i < 70; ++i)
    objects += "{\"a\":";
  CHECK_FALSE(json_refusal(objects).empty());
  CHECK(json_refusal("\"" + std::string(1000, '[') + "\"").empty());
  CHECK(json_refusal("\"\\\"" + std::string(1000, '{') + "\"").empty());
  CHECK_FALSE(json_refusal("\"\\\\\"" + std::string(1000, '{')).empty());
}

TEST_CASE("a key that stands twice in one object is named with its place", "[schedule]") {
  CHECK(json_refusal(R"({"a":1,"b":{"a":2},"c":[{"a":1},{"a":1}]})").empty());
  CHECK(json_refusal(R"({"a":1,"b":2,"a":3})") ==
        "x.json: key \"a\" stands a second time in its object, at byte 14 of 19");
  CHECK_FALSE(json_refusal(R"([{"x":{"k":"v","k":"v"}}])").empty());
  CHECK(json_refusal(R"({"a":"a","b":["a","a"],"c":"a"})").empty());
  CHECK_FALSE(json_refusal(R"({"a":"}","a":0})").empty());
}

TEST_CASE("what is no JSON is left for the parser to refuse", "[schedule]") {
  for (const std::string text :
       {"", "]", "}}}}", "{", "[[[", "\"", "\"\\", "{\"a", "{\"a\\\"", ",,,,", "{,\"a\",\"a\""})
    CHECK(json_refusal(text).empty());
}

// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/error.hpp"
#include "plumb/sizing/left_out.hpp"
#include "support/catch.hpp"

using namespace plumb;

namespace {

std::vector<std::string> told(std::string_view text) {
  std::vector<std::string> parts;
  for (const LeftOut& part : parse_left_out(text, "x"))
    parts.push_back(to_string(part));
  return parts;
}

using Told = std::vector<std::string>;

}  // namespace

TEST_CASE("parts of a model that no time and no byte is counted for are told with field and value", "[sizing]") {
  CHECK(told(R"({"num_nextn_predict_layers": 1})") == Told{"num_nextn_predict_layers: 1 (multi-token prediction)"});
  CHECK(told(R"({"text_config": {"num_nextn_predict_layers": 2}, "vision_config": {"depth": 27}})") ==
        Told{"vision_config (an encoder of pictures)",
             "text_config.num_nextn_predict_layers: 2 (multi-token prediction)"});
  CHECK(told(R"({"sliding_window": 4096})") == Told{"sliding_window: 4096 (full attention is counted)"});
  CHECK(told(R"({"audio_config": {"a": 1}, "mtp_num_layers": 3})").size() == 2);
}

TEST_CASE("what a file says it does not have is not told", "[sizing]") {
  for (const char* text :
       {"{}", R"({"num_nextn_predict_layers": 0})", R"({"num_nextn_predict_layers": null})",
        R"({"sliding_window": null})", R"({"sliding_window": 4096, "use_sliding_window": false})",
        R"({"vision_config": {}})", R"({"vision_config": null, "text_config": {}})", R"({"mtp_num_layers": false})"})
    CHECK(told(text).empty());
  CHECK(left_out_of("kimi-k3").empty());
  CHECK(left_out_of(PLUMB_SIZING_DATA "/kimi-linear-48b-a3b-instruct.config.json").empty());
  CHECK_THROWS_AS(parse_left_out("[]", "x"), InputError);
  CHECK_THROWS_AS(parse_left_out("{", "x"), InputError);
  CHECK_THROWS_AS(left_out_of("no-such-model"), InputError);
}

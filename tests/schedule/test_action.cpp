// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/action.hpp"
#include "support.hpp"

namespace plumb {
namespace {

using Catch::Matchers::Contains;
using test::input_error_of;

Compute compute(Op op, int chunk, int microbatch) { return {op, ChunkId(chunk), Microbatch(microbatch)}; }

TEST_CASE("an action is written as the token of the schedule file and read back", "[schedule]") {
  const std::pair<Action, const char*> cases[] = {
      {{compute(Op::forward, 3, 12), {}}, "3F12"},
      {{compute(Op::backward, 0, 7), {}}, "0B7"},
      {{compute(Op::backward_input, 10, 0), {}}, "10I0"},
      {{compute(Op::backward_weight, 65535, 1048575), {}}, "65535W1048575"},
      {{compute(Op::forward, 0, 7), compute(Op::backward, 7, 3)}, "(0F7;7B3)OVERLAP_F_B"},
      {{compute(Op::forward, 0, 7), compute(Op::backward_input, 7, 3)}, "(0F7;7I3)OVERLAP_F_B"},
  };
  for (const auto& [action, token] : cases) {
    CHECK(to_string(action) == token);
    CHECK(parse_action(token) == action);
  }
}

TEST_CASE("a token that a lenient reader would guess at is refused", "[schedule]") {
  const char* traps[] = {
      "0F0junk",
      "2BW0",
      "0WAIT_SEND_F0",
      "0F0;1F0",
      "1I2.5",
      "0F 0",
      "00F07",
      "0F07",
      "00F7",
      "\xd9\xa3"
      "F0",
      "0F\xd9\xa3",
      "()OVERLAP_F_B",
      "-1OVERLAP_F_B",
      "F0",
      "-1F0",
      "+1F0",
      "0f0",
      "0SEND",
      "None",
      "",
      " ",
      " 0F0",
      "0F0 ",
      "0F",
      "2B",
      "0F-1",
      "0F0F0",
      "0F0,",
      "1e2F0",
      "0x1F0",
      "0F1e2",
      "0FF0",
      "0G0",
      "0",
      "12",
      "(",
      ")",
      "(0F7;7B3",
      "0F7;7B3)OVERLAP_F_B",
      "(0F7;7B3)",
      "(0F7;7B3) OVERLAP_F_B",
      "(0F7; 7B3)OVERLAP_F_B",
      "( 0F7;7B3)OVERLAP_F_B",
      "(0F7;7B3)OVERLAP_F_B ",
      "(0F7;7B3)BATCH_P2P",
      "(0F7;7B3)OVERLAP_F_BX",
      "(0F7;7B3)overlap_f_b",
      "(0F7)OVERLAP_F_B",
      "(0F7;7B3;1F0)OVERLAP_F_B",
      "(0F7;)OVERLAP_F_B",
      "(;7B3)OVERLAP_F_B",
      "((0F7;7B3)OVERLAP_F_B;1B0)OVERLAP_F_B",
      "(7B3;0F7)OVERLAP_F_B",
      "(0F7;7W3)OVERLAP_F_B",
      "(0B7;7B3)OVERLAP_F_B",
      "(0W7;7B3)OVERLAP_F_B",
      "(0F7;7F3)OVERLAP_F_B",
      "(0SEND_F0;2RECV_F0)BATCH_P2P",
      "65536F0",
      "0F1048576",
      "99999999999999999999F0",
      "0F4294967296",
  };
  for (const char* trap : traps) {
    CAPTURE(trap);
    CHECK_THAT(input_error_of([&] { (void)parse_action(trap); }),
               Contains("token \"") && Contains("expected a form like"));
  }
  CHECK_THROWS_AS(parse_action(std::string_view("0F0\0", 4)), InputError);
}

TEST_CASE("a token respelled in the old dialect is read there as the same", "[schedule]") {
  for (const std::string token : {"0F0", "3B12", "3I12", "3W12"}) {
    const std::string old = respelled(token, CsvDialect::legacy);
    CHECK(parse_action(old, CsvDialect::legacy) == parse_action(token));
    CHECK(respelled(token, CsvDialect::current) == token);
  }
  CHECK(respelled("3B12", CsvDialect::legacy) == "3BW12");
  for (const std::string other : {"", "0SEND_F1", "add 3", "(0F7;7B3)OVERLAP_F_B"})
    CHECK(respelled(other, CsvDialect::legacy) == other);
}

TEST_CASE("a refusal says what was wrong with the token", "[schedule]") {
  const auto why = [](std::string_view token) { return input_error_of([&] { (void)parse_action(token); }); };
  CHECK_THAT(why("0F0junk"), Contains("\"0F0junk\"") && Contains("\"junk\" stands after the microbatch"));
  CHECK_THAT(why("0F"), Contains("a microbatch number is missing"));
  CHECK_THAT(why("00F7"), Contains("a chunk number has leading zeros"));
  CHECK_THAT(why("0f0"), Contains("unknown type \"f\""));
  CHECK_THAT(why("2BW0"), Contains("old spelling") && Contains("write B"));
  CHECK_THAT(why("-1OVERLAP_F_B"), Contains("chunk number is missing"));
  CHECK_THAT(why("1OVERLAP_F_B"), Contains("needs its two computations in front"));
  for (const std::string type :
       {"SEND_F", "RECV_F", "SEND_B", "RECV_B", "WAIT_SEND_F", "UNSHARD", "RESHARD", "REDUCE_GRAD"}) {
    CHECK_THAT(why("0" + type + "1"), Contains(type + " is not a computation"));
    CHECK_THAT(why("0" + type), Contains(type + " is not a computation"));
  }
  CHECK_THAT(why("( 0F1 ; 0B0 )OVERLAP_F_B"), Contains("blanks may stand around a cell, but not inside a pair"));
  CHECK_THAT(why("0F\xd9\xa3"), Contains("\\xd9\\xa3"));
  CHECK(why(std::string(5000, 'x')).size() < 300);
}

}  // namespace
}  // namespace plumb

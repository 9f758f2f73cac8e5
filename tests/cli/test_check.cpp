// SPDX-License-Identifier: Apache-2.0
// plumb check on the three kinds of files, and what goes wrong with each.
#include <string>

#include <nlohmann/json.hpp>

#include "cli/support.hpp"
#include "support/catch.hpp"
#include "support/sanitized.hpp"

using Catch::Matchers::Contains;
using nlohmann::json;
using plumb::test::Run;
using plumb::test::run_plumb;

namespace {

// 1F1B on two ranks, each receive directly before its consumer.
const std::string deferred =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";

json check_answer(const std::string& arguments, const std::string& input, int exit_code) {
  const Run run = run_plumb("check - --json " + arguments, input);
  INFO(arguments << "\n" << run.err);
  REQUIRE(run.exit_code == exit_code);
  return json::parse(run.out);
}

// Bad input: exit code 2, one line on stderr.
std::string refusal(const std::string& input, const std::string& arguments = "") {
  const Run run = run_plumb("check - " + arguments, input);
  CHECK(run.exit_code == 2);
  CHECK(run.out.empty());
  CHECK(run.reason() == "config");
  CHECK(run.err.find('\n') == run.err.size() - 1);
  return run.err;
}

}  // namespace

TEST_CASE("check names the channels that a schedule with communication can deadlock on", "[cli]") {
  const json all = check_answer("", deferred, 1);
  CHECK(all.at("ok") == false);
  CHECK(all.at("errors").empty());
  CHECK(all.at("deadlock").at("channels") == "shared-fifo");
  CHECK(all.at("deadlock").at("cycle") ==
        json{{{"rank", 0}, {"action", "0SEND_F1"}}, {{"rank", 1}, {"action", "1SEND_B0"}}});
  CHECK(all.at("channels_safe") == json{{"buffered", true},
                                        {"fifo-per-edge", true},
                                        {"fifo-per-pair", true},
                                        {"shared-fifo", false},
                                        {"single-stream", true},
                                        {"rendezvous", false}});
  CHECK(check_answer("--channels fifo-per-pair", deferred, 0).at("ok") == true);
  CHECK(check_answer("--shared-fifo", deferred, 1).at("channels_safe") == json{{"shared-fifo", false}});
  const Run text = run_plumb("check -", deferred);
  CHECK(text.exit_code == 1);
  CHECK_THAT(text.out, Contains("rank 0 0SEND_F1 -> rank 1 1SEND_B0 -> rank 0 0SEND_F1"));
  CHECK(text.reason() == "config");
}

TEST_CASE("check names faults of communication by row and column and token", "[cli]") {
  const json check = check_answer("", "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n", 1);
  CHECK(check.at("errors") ==
        json{{{"row", 0}, {"column", 2}, {"token", "0RECV_B0"}, {"why", "nobody sends it: rank 1 has no 1SEND_B0"}}});
  CHECK(check.at("deadlock").at("cycle") == json{{{"rank", 0}, {"action", "0RECV_B0"}}});
  const json swapped =
      check_answer("--channels fifo-per-pair", "0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F1,1RECV_F0,1F0,1F1\n", 1);
  CHECK(swapped.at("errors").at(0).at("token") == "1RECV_F1");
  CHECK_THAT(swapped.at("errors").at(0).at("why").get<std::string>(),
             Contains("with channels fifo-per-pair gets what rank 0 sends as 0SEND_F0"));
  CHECK(swapped.at("channels_safe").at("fifo-per-pair") == false);
}

TEST_CASE("rows on the wrong rank are faults like any others", "[cli]") {
  const json swapped = check_answer("", "1F0,1B0\n0F0,0B0\n", 1);
  CHECK(swapped.at("ok") == false);
  CHECK(swapped.at("errors").size() == 4);
  CHECK(swapped.at("errors")[0] ==
        json{{"row", 0}, {"column", 0}, {"token", "1F0"}, {"why", "chunk 1 belongs to rank 1 in placement loop"}});
  const json comms = check_answer("", "0F0,0SEND_F0,2F0\n1RECV_F0,1F0,1SEND_F0,3F0\n", 1);
  CHECK_FALSE(comms.at("errors").empty());
  CHECK(check_answer("", "0F0,9SEND_F0\n1RECV_F0,1F0\n", 1).at("errors")[0].at("token") == "9SEND_F0");
  CHECK(check_answer("", "0F0,0SEND_F7\n1RECV_F0,1F0\n", 1).at("errors")[0].at("token") == "0SEND_F7");
  const std::string looped = "0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n";
  CHECK(check_answer("--placement loop", looped, 0).at("ok") == true);
  const json vee = check_answer("--placement vee", looped, 1);
  CHECK(vee.at("errors")[0].at("token") == "2F0");
  // All but one row are vee's: what disagrees is named in its terms.
  CHECK_THAT(check_answer("", "0F0,3F0\n1F0,2F0,0F1\n", 1).at("errors")[0].at("why").get<std::string>(),
             Contains("vee"));
}

TEST_CASE("a message that nobody sends is no cycle", "[cli]") {
  const std::string unmatched = "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n";
  const json check = check_answer("", unmatched, 1);
  CHECK(check.at("deadlock").at("unmatched") == true);
  CHECK(check.at("deadlock").at("all")[0].at("channels").size() == 6);
  CHECK(check_answer("", deferred, 1).at("deadlock").at("unmatched") == false);
  const std::string text = run_plumb("check -", unmatched).out;
  CHECK_THAT(text, Contains("unmatched, its partner never comes: rank 0 0RECV_B0") && !Contains("cycle"));
}

TEST_CASE("each cycle names the channels on which it stands", "[cli]") {
  CHECK_THAT(run_plumb("check -", deferred).out, Contains("shared-fifo, rendezvous: cycle, each waits for the next: "));
  CHECK_THAT(run_plumb("check - --channels buffered,rendezvous", deferred).out, Contains("\nrendezvous: cycle"));
  CHECK(check_answer("--channels buffered,shared-fifo", deferred, 1).at("channels_safe") ==
        json{{"buffered", true}, {"shared-fifo", false}});
  CHECK_THAT(refusal(deferred, "--channels buffered,pigeon"), Contains("'pigeon'"));
  CHECK_THAT(refusal(deferred, "--channels buffered,buffered"), Contains("twice"));
  CHECK_THAT(refusal(deferred, "--channels buffered,"), Contains("''"));
  CHECK_THAT(run_plumb("check --help").out, Contains("shared-fifo"));
}

TEST_CASE("a pair of a forward and its own backward is a fault, not a cycle", "[cli]") {
  const json check = check_answer("", "(0F0;0B0)OVERLAP_F_B,0F1,0B1\n", 1);
  CHECK(check.at("errors")[0].at("token") == "(0F0;0B0)OVERLAP_F_B");
  CHECK_THAT(check.at("errors")[0].at("why").get<std::string>(), Contains("its own backward"));
  CHECK(check.at("deadlock").is_null());
}

TEST_CASE("a program under a name that nobody knows is noted", "[cli]") {
  std::string program = run_plumb("plan --pp 2 --json").out;
  program.replace(program.find("\"1f1b\""), 6, "\"2g2c\"");
  CHECK_THAT(check_answer("", program, 0).at("notes")[0].get<std::string>(), Contains("'2g2c'"));
}

TEST_CASE("check counts the bubbles of a compute schedule in its columns", "[cli]") {
  const json check = check_answer("", "0F0,,,0B0,0B0\n,1F0,1B0\n", 1);
  CHECK(check.at("errors").at(0).at("row") == 0);
  CHECK(check.at("errors").at(0).at("column") == 4);
}

TEST_CASE("plans written with communication pass the check as they are", "[cli]") {
  for (const char* schedule : {"1f1b", "gpipe", "interleaved --vp 2", "looped-bfs --vp 2", "zb-h1 --vp 2",
                               "zb-v --vp 2", "dualpipe-v --vp 2", "v-half --vp 2", "v-min --vp 2"}) {
    for (const char* depth :
         {"", " --layers 16 --cache relay", " --layers 16 --cache naive", " --layers 16 --residual standard"}) {
      const std::string flags = std::string(" --pp 4 --microbatches 8 --schedule ") + schedule + depth;
      INFO(flags);
      const Run plan = run_plumb("plan --format csv-comms" + flags);
      REQUIRE(plan.exit_code == 0);
      CHECK(check_answer("", plan.out, 0).at("ok") == true);
    }
  }
  const Run cached = run_plumb("plan --format csv-comms --pp 2 --layers 8");
  CHECK(cached.exit_code == 2);
  CHECK_THAT(cached.err, Contains("policy cached") && Contains("legal are standard, naive and relay"));
}

TEST_CASE("check reads the old dialect only when told to", "[cli]") {
  const std::string old = "0F0,0F1,0B0,0W0,0BW1\n1F0,1B0,1W0,1F1,1BW1\n";
  CHECK_THAT(refusal(old), Contains("row 1 (rank 0), column 5") && Contains("\"0BW1\"") && Contains("legacy"));
  CHECK(check_answer("--legacy", old, 0).at("ok") == true);
  CHECK(check_answer("--legacy", "0F0,0SEND_F0,0RECV_B0,0BW0\n1RECV_F0,1F0,1B0,1SEND_B0,1W0\n", 0).at("ok") == true);
  CHECK_THAT(refusal("{}", "--legacy"), Contains("--legacy goes with a CSV"));
  // Faults quote the file.
  const json twice = check_answer("--legacy", "0F0,0BW0,0BW0\n", 1);
  CHECK(twice.at("errors")[0].at("token") == "0BW0");
  const json missing = check_answer("--legacy", "0F0,0F1,0B0,0W0,0B1\n", 1);
  CHECK(missing.at("errors")[0].at("token") == "0W1");
  const json early = check_answer("--legacy", "0B0,0F0,0W0\n", 1);
  CHECK(early.at("errors")[0].at("token") == "0F0");
}

TEST_CASE("check refuses what is no schedule at all in one line", "[cli]") {
  CHECK_THAT(refusal(""), Contains("is empty"));
  CHECK_THAT(refusal("\n\n"), Contains("is empty"));
  CHECK_THAT(refusal("\xef\xbb\xbf" + deferred), Contains("byte order mark"));
  CHECK_THAT(refusal("0F0,0SEND_F0,\n1RECV_F0,1F0\n"), Contains("row 1 (rank 0), column 3: an empty cell"));
  CHECK_THAT(refusal("1024F0,0F0\n"), Contains("row 1 (rank 0), column 1: 1024F0") && Contains("1..1024"));
  CHECK_THAT(refusal("0F0\n4F0\n"), Contains("row 2 (rank 1), column 1: 4F0: 2 rows cannot share 5 chunks"));
  CHECK_THAT(refusal("0F0,( 0F1 ; 0B0 )OVERLAP_F_B\n"),
             Contains("row 1 (rank 0), column 2") && Contains("not inside a pair"));
  CHECK_THAT(refusal("0F0junk,0B0\n"), Contains("\"0F0junk\""));
  CHECK_THAT(refusal(std::string(static_cast<std::size_t>(plumb::test::rounds(100, 10)) << 20, ',')),
             Contains("no computation at all"));
  CHECK_THAT(refusal(std::string("\x7f"
                                 "ELF\0\0\x01",
                                 7)),
             Contains("row 1 (rank 0), column 1"));
  CHECK(run_plumb("check -", " 0F0 , 0SEND_F0\r\n1RECV_F0\t,1F0\n").exit_code == 0);
  CHECK(run_plumb("check -", "0F0,0SEND_F0\r\n\r\n").exit_code != 0);
  CHECK(run_plumb("check no-such-file.csv").exit_code == 2);
  CHECK(run_plumb("check - --channels pigeon", deferred).exit_code == 2);
}

TEST_CASE("a Megatron layout stands for V and cuts and depth", "[cli]") {
  const Run run = run_plumb("volume --pp 16 --layout 'Et*3|(tt|)*29,m|L' --json");
  REQUIRE(run.exit_code == 0);
  const json layout = json::parse(run.out).at("layout");
  CHECK(layout.at("vp") == 2);
  CHECK(layout.at("chunks") == 32);
  CHECK(layout.at("sublayers") == 122);
  CHECK(layout.at("cuts").at(0) == 6);
  CHECK(layout.at("cuts").at(29) == 122);
  const auto why = [](const std::string& flags) {
    const Run bad = run_plumb("volume " + flags);
    CHECK(bad.exit_code == 2);
    return bad.err;
  };
  CHECK_THAT(why("--pp 2 --layout 'Et|q'"), Contains("column 4"));
  CHECK_THAT(why("--pp 2 --layout 'EtL'"), Contains("1 stages of the layout"));
  CHECK_THAT(why("--pp 2 --vp 3 --layout 'Et|tL'"), Contains("not --vp 3"));
  CHECK_THAT(why("--pp 2 --layout 'Et|tL' --cuts 2"), Contains("exclude each other"));
  CHECK_THAT(why("--pp 2 --layout 'Et|tL' --layers 4"), Contains("2 decoder layers t, --layers 4"));
  CHECK_THAT(why("--pp 2 --layout 'Et|tL' --model kimi-k3"), Contains("186"));
}

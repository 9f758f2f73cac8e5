// SPDX-License-Identifier: Apache-2.0
//
// The program as a user starts it: what comes out, how it ends, and that several processes end alike.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "logged_steps.hpp"
#include "run_command.hpp"
#include "support/catch.hpp"

using plumb::lm::test::Ended;
using plumb::lm::test::shell;
using plumb::lm::test::temporary;

namespace {

const std::string kProgram = PLUMB_TRAIN;
const std::string kTiny = " --layers 3 --hidden 16 --heads 2 --seq 8 --tokens 16 --json";

}  // namespace

TEST_CASE("a run prints one JSON object in which three counts of the bytes are equal", "[examples]") {
  const std::string log = temporary(".jsonl");
  const Ended ended = shell(kProgram + kTiny + " --steps 6 --pp 2 --vp 2 --log " + log);
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  const auto json = nlohmann::json::parse(ended.out);
  CHECK(json.at("steps") == 6);
  CHECK(json.at("loss").size() == 6);
  CHECK(json.at("reference").is_null());
  CHECK(json.at("split_backward").is_null());
  for (const char* const policy : {"naive", "relay", "cached", "direct"}) {
    const auto& bytes = json.at("bytes_per_step").at(policy);
    CHECK(bytes.at("formula") == bytes.at("simulated"));
    CHECK(bytes.at("formula") == bytes.at("wire"));
    CHECK(bytes.at("wire") > 0);
  }
  std::ifstream lines(log);
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    const auto entry = nlohmann::json::parse(line);
    if (entry.contains("loss")) {
      CHECK(entry.at("step") == count + 1);
      CHECK(entry.at("loss") == json.at("loss")[static_cast<std::size_t>(count)]);
      ++count;
    }
  }
  CHECK(count == 6);
  // Steps 2 to 4 tried the other policies.
  const plumb::MeasuredLog events = plumb::lm::test::read_log_of_three_layers(log, 2, 2);
  CHECK(events.made_by == "plumb train");
  CHECK(events.numbers == std::vector<std::int64_t>{1, 5, 6});
  // With whatever times one predicts.
  const Ended compared =
      shell(std::string(PLUMB) + " sim --layers 3 --pp 2 --vp 2 --action-us F=700,B=1900 --against " + log);
  INFO(compared.err);
  CHECK(compared.code == 0);
  CHECK_THAT(compared.out, Catch::Matchers::Contains("by plumb train, the middle one of 3: measured"));
  CHECK(shell(std::string(PLUMB) + " sim --layers 4 --pp 2 --vp 2 --against " + log).code == 2);
  std::filesystem::remove(log);
}

TEST_CASE("diagnostics of depth attention are those of one rank, whatever the layout", "[examples]") {
  const std::string one = temporary("-one");
  const std::string four = temporary("-four.jsonl");
  const std::string flags = " --steps 3 --stats-every 2 --microbatches 4 --stats ";
  REQUIRE(shell(kProgram + kTiny + flags + one).code == 0);
  const Ended ended = shell(kProgram + kTiny + " --pp 2 --vp 2 --recompute full" + flags + four);
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  std::ifstream lines_of_one(one);
  std::ifstream lines_of_four(four);
  std::string line;
  for (const int step : {2, 3}) {
    for (int sublayer = 0; sublayer <= 6; ++sublayer) {
      CAPTURE(step, sublayer);
      std::getline(lines_of_one, line);
      const auto expected = nlohmann::json::parse(line);
      std::getline(lines_of_four, line);
      const auto got = nlohmann::json::parse(line);
      CHECK(got.at("step") == step);
      CHECK(got.at("sublayer") == sublayer);
      CHECK(got.at("part") == (sublayer == 6 ? "head" : sublayer % 2 == 0 ? "attention" : "mlp"));
      double sum = got.at("partial_occupancy").is_null() ? 0 : got.at("partial_occupancy").get<double>();
      for (const auto& weight : got.at("occupancy")) {
        sum += weight.get<double>();
      }
      CHECK(sum == Approx(1).epsilon(1e-12));
      for (const char* const field : {"entropy", "output_rms", "query_gradient_norm", "output_gradient_norm"}) {
        CAPTURE(field);
        if (expected.at(field).is_null()) {
          CHECK(got.at(field).is_null());
        } else {
          CHECK(got.at(field).get<double>() == Approx(expected.at(field).get<double>()).epsilon(1e-3));
        }
      }
    }
  }
  CHECK(!std::getline(lines_of_four, line));
  for (const std::string& picture : {one + ".svg", four.substr(0, four.size() - 6) + ".svg"}) {
    std::ifstream svg(picture);
    std::getline(svg, line);
    CHECK(line.starts_with("<?xml"));
    std::filesystem::remove(picture);
  }
  std::filesystem::remove(one);
  std::filesystem::remove(four);
}

TEST_CASE("a policy that was not run has no wire count", "[examples]") {
  const Ended ended = shell(kProgram + kTiny + " --pp 2 --steps 2 --cache naive");
  REQUIRE(ended.code == 0);
  const auto bytes = nlohmann::json::parse(ended.out).at("bytes_per_step");
  CHECK(bytes.at("naive").at("wire") == bytes.at("naive").at("formula"));
  CHECK(bytes.at("relay").at("wire") == bytes.at("relay").at("formula"));
  CHECK(bytes.at("direct").at("wire").is_null());
}

TEST_CASE("numbers that are not decimal and empty values are refused before anything runs", "[examples]") {
  for (const std::string flags : {"--seed -1", "--seed 18446744073709551616", "--pp 010", "--hidden 0x20", "--load ''",
                                  "--save ''", "--log=", "--steps ''"}) {
    const Ended ended = shell(kProgram + kTiny + " " + flags);
    INFO(flags << ": " << ended.err);
    CHECK(ended.code == 2);
    CHECK(ended.out.empty());
  }
}

TEST_CASE("the check against plain torch passes in every format", "[examples]") {
  const auto [dtype, loss, gradient] = GENERATE(table<std::string, double, double>(
      {{"fp32", 1e-4, 1e-4}, {"fp64", 1e-9, 1e-11}, {"bf16", 5e-2, 5e-2}, {"fp16", 1e-2, 1e-2}}));
  const Ended ended = shell(kProgram + kTiny + " --pp 2 --vp 2 --steps 6 --check --recompute full --dtype " + dtype);
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  const auto json = nlohmann::json::parse(ended.out);
  const auto& reference = json.at("reference");
  CHECK(reference.at("max_loss_difference") <= loss);
  CHECK(reference.at("max_gradient_difference") <= gradient);
  // Values as they are stored, gradients as they are added up.
  const int bytes_of_pair = dtype == "fp64" ? 8 + 8 : dtype == "fp32" ? 4 + 4 : 2 + 4;
  CHECK(json.at("bytes_per_step").at("cached").at("wire").get<int>() % (16 * 16 * bytes_of_pair * 4) == 0);
  CHECK(json.at("bytes_per_step").at("cached").at("wire") == json.at("bytes_per_step").at("cached").at("formula"));
}

TEST_CASE("a schedule that splits the backward trains, recomputing too, and says what W takes", "[examples]") {
  const std::string schedule = GENERATE("zb-h1 --group-rule torch", "dualpipe-v");
  const Ended ended = shell(kProgram + kTiny + " --pp 2 --vp 2 --steps 4 --check --recompute full --dtype fp64 " +
                            "--schedule " + schedule);
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  const auto json = nlohmann::json::parse(ended.out);
  CHECK(json.at("reference").at("max_gradient_difference") <= 1e-11);
  CHECK(json.at("split_backward").at("weight_share_of_cpu_time") > 0);
  CHECK(json.at("split_backward").at("weight_share_of_cpu_time") < 1);
  CHECK(json.at("split_backward").at("peak_deferred_bytes") > 0);
}

TEST_CASE("bad input ends with code 2 and one line", "[examples]") {
  const std::string binary = temporary(".bin");
  std::ofstream(binary, std::ios::binary) << std::string("text\0with a zero byte in it", 27);
  for (const auto& [flags, word] : {std::pair<std::string, std::string>{"--vp zero", "usage: "},
                                    {"--no-such-flag", "usage: "},
                                    {"--pp 2 --vp 3 --schedule zb-v", "config: "},
                                    {"--ranks tcp", "config: "},
                                    {"--text /nowhere/text", "config: "},
                                    {"--text " + binary, "config: "},
                                    {"--load /nowhere/checkpoint", "config: "},
                                    {"--stats-every 2", "config: "},
                                    {"--stats " + binary + " --stats-every 0", "config: "},
                                    {"--stats " + binary + " --residual standard", "config: "},
                                    {"--dtype bf8", "config: "},
                                    {"--dtype bf16 --grad-wire storage", "config: "},
                                    {"--cache magic", "config: "}}) {
    const Ended ended = shell(kProgram + kTiny + " --steps 6 " + flags);
    CAPTURE(flags, ended.err);
    CHECK(ended.code == 2);
    CHECK(ended.last_line().starts_with(word));
    CHECK(ended.out.empty());
  }
  std::filesystem::remove(binary);
}

TEST_CASE("what is read is not written over", "[examples]") {
  const std::string text = temporary(".txt");
  std::ofstream(text) << std::string(4000, 'a') << "b";
  for (const std::string flag : {"--log ", "--stats ", "--profile-out "}) {
    const Ended ended = shell(kProgram + kTiny + " --steps 1 --text " + text + " " + flag + text);
    CAPTURE(flag, ended.err);
    CHECK(ended.code == 2);
    CHECK_THAT(ended.last_line(), Catch::Matchers::Contains("--text and " + flag + "name the same file"));
    CHECK(std::filesystem::file_size(text) == 4001);
  }
  std::filesystem::remove(text);
}

TEST_CASE("what cannot be written ends with code 3 and one line, before the first step", "[examples]") {
  for (const char* const flags : {"--log /nowhere/log", "--save /proc/here", "--stats /nowhere/stats"}) {
    const Ended ended = shell(kProgram + kTiny + " --steps 6 " + flags);
    CAPTURE(flags, ended.err);
    CHECK(ended.code == 3);
    CHECK(ended.last_line().starts_with(std::string("config: ") + flags));
    CHECK(ended.out.empty());
  }
}

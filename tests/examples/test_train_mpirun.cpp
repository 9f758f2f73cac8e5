// SPDX-License-Identifier: Apache-2.0
//
// The program under mpirun: the same losses as with threads, and all ranks ending alike when they cannot agree.
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "logged_steps.hpp"
#include "run_command.hpp"
#include "support/catch.hpp"
#include "train_lm/stats_file.hpp"

using plumb::lm::picture_beside;
using plumb::lm::test::Ended;
using plumb::lm::test::shell;
using plumb::lm::test::temporary;

namespace {

const std::string kTrain = PLUMB_TRAIN;
const std::string kTinyRun = " --layers 3 --hidden 16 --heads 2 --seq 8 --tokens 16 --steps 5 --json";

// Given on rank 0's side of a colon too, so flags may differ from rank to rank.
Ended mpirun(const std::string& ranks) {
  return shell(PLUMB_MPI_ENVIRONMENT " timeout 50 " PLUMB_MPIEXEC " --quiet --oversubscribe " + ranks);
}

}  // namespace

TEST_CASE("processes and threads print the same losses and bytes, processes log into one file", "[examples]") {
  const std::string flags = kTinyRun + " --pp 2 --vp 2";
  const std::string log = temporary(".jsonl");
  const std::string stats[] = {temporary("-processes.jsonl"), temporary("-threads.jsonl")};
  const Ended processes = mpirun("-n 2 " + kTrain + flags + " --log " + log + " --stats " + stats[0]);
  const Ended threads = shell(kTrain + flags + " --stats " + stats[1]);
  INFO(processes.err);
  REQUIRE(processes.code == 0);
  REQUIRE(threads.code == 0);
  CHECK(nlohmann::json::parse(processes.out) == nlohmann::json::parse(threads.out));
  CHECK(plumb::lm::test::read_log_of_three_layers(log, 2, 2).numbers == std::vector<std::int64_t>{1, 5});
  std::filesystem::remove(log);
  CHECK(shell("cmp " + stats[0] + " " + stats[1]).code == 0);
  for (const std::string& file : stats) {
    std::filesystem::remove(file);
    std::filesystem::remove(picture_beside(file));
  }
}

TEST_CASE("a number of processes other than --pp is refused", "[examples]") {
  const Ended ended = mpirun("-n 3 " + kTrain + kTinyRun + " --pp 2");
  CHECK(ended.code == 2);
  CHECK_THAT(ended.err, Catch::Matchers::Contains("config: --pp is 2 but 3 MPI ranks were started"));
}

TEST_CASE("ranks started with different flags name the flag and end with code 2", "[examples]") {
  const std::string one = "-n 1 " + kTrain + kTinyRun + " --pp 2";
  const Ended ended = mpirun(one + " --seed 1 : " + one);
  CHECK(ended.code == 2);
  CHECK_THAT(ended.err, Catch::Matchers::Contains("--seed is '1' on rank 0 and '0' on rank 1"));
}

TEST_CASE("a flag that only one rank cannot understand ends all ranks", "[examples]") {
  const std::string one = "-n 1 " + kTrain + kTinyRun + " --pp 2";
  const Ended ended = mpirun(one + " : " + one + " --nonsense");
  CHECK(ended.code == 2);
  CHECK_THAT(ended.err, Catch::Matchers::Contains("usage: "));
}

TEST_CASE("a log that rank 0 cannot open ends all ranks", "[examples]") {
  const Ended ended = mpirun("-n 2 " + kTrain + kTinyRun + " --pp 2 --log /nowhere/log");
  CHECK(ended.code == 3);
  CHECK_THAT(ended.err, Catch::Matchers::Contains("config: --log /nowhere/log"));
}

TEST_CASE("ranks as threads under mpirun are refused", "[examples]") {
  const Ended ended = mpirun("-n 2 " + kTrain + kTinyRun + " --pp 2 --ranks inproc");
  CHECK(ended.code == 2);
  CHECK_THAT(ended.err, Catch::Matchers::Contains("--ranks inproc under mpirun"));
}

TEST_CASE("a checkpoint saved by processes is loaded by threads under another layout", "[examples]") {
  const std::string folder = temporary("-checkpoint");
  const Ended saved = mpirun("-n 2 " + kTrain + kTinyRun + " --pp 2 --save " + folder);
  INFO(saved.err);
  REQUIRE(saved.code == 0);
  const Ended loaded = shell(kTrain + " --load " + folder + " --pp 1 --vp 3 --steps 2 --json");
  INFO(loaded.err);
  CHECK(loaded.code == 0);
  CHECK(shell("rm -r " + folder).code == 0);
}

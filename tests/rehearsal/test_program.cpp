// SPDX-License-Identifier: Apache-2.0
// The program as people start it: plumb rehearse, plumb sim --against.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "cli/support.hpp"
#include "support/catch.hpp"

using nlohmann::json;
using plumb::test::Run;
using plumb::test::run_plumb;
using plumb::test::scratch_file;

namespace {

const std::string layout = " --pp 2 --vp 2 --microbatches 4 --sublayers 8 --block 2 --dtype fp32";
const std::string costs = " --action-us F=500,I=500,W=500 --unit-us 50 --hop-us 20";
const std::string small = " --unit-bytes 4096 --steps 2";

void require_rehearse_refused(const std::string& arguments, const std::string& names) {
  const Run run = run_plumb("rehearse" + arguments);
  INFO(arguments << "\n" << run.err);
  CHECK(run.exit_code == 2);
  CHECK(run.out.empty());
  CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
  CHECK((run.reason() == "usage" || run.reason() == "config"));
  CHECK(run.err.find(names) != std::string::npos);
}

}  // namespace

TEST_CASE("a rehearsal prints one JSON object with the documented keys", "[rehearsal]") {
  const Run run = run_plumb("rehearse" + layout + costs + small + " --json");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const json result = json::parse(run.out);
  for (const char* key :
       {"step_us", "spread_us", "overhead_over_standard", "predicted_step_us", "ranks", "bytes_per_step", "mismatches"})
    CHECK(result.contains(key));
  CHECK(result["mismatches"] == 0);
  CHECK(result["bytes_per_step"]["formula"] == result["bytes_per_step"]["wire"]);
  CHECK(result["bytes_per_step"]["formula"] == result["bytes_per_step"]["simulated"]);
  CHECK(result["ranks"].size() == 2);
  CHECK(result["step_us"].get<double>() >= 4 * 2 * 3 * 500);  // no rank is faster than its computations
  CHECK(result["predicted_step_us"].get<double>() >= 4 * 2 * 3 * 500);
}

TEST_CASE("a rehearsal prints a table and refuses to compare a standard residual with itself", "[rehearsal]") {
  const Run table = run_plumb("rehearse" + layout + costs + small);
  REQUIRE(table.exit_code == 0);
  for (const char* word : {"overhead", "exposed communication", "0 mismatches", "cores used"})
    CHECK(table.out.find(word) != std::string::npos);
  const Run standard = run_plumb("rehearse --pp 2 --vp 2 --microbatches 4 --sublayers 8 --residual standard" + costs +
                                 small + " --json");
  REQUIRE(standard.exit_code == 0);
  CHECK(json::parse(standard.out)["overhead_over_standard"].is_null());
}

TEST_CASE("every impairment still delivers everything", "[rehearsal]") {
  for (const std::string impair : {"none", "lanes", "priority", "overlap", "single-stream", "unplanned-stream"}) {
    const Run run = run_plumb("rehearse" + layout + costs + small + " --json --impair " + impair);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    CHECK(json::parse(run.out)["mismatches"] == 0);
    CHECK(json::parse(run.out)["impair"] == impair);
  }
}

// What these cost hangs on which message waits behind which: queues in the order of the program, as the executor keeps
// them, give other figures than whatever is ready first.
TEST_CASE("beside an impaired rehearsal stands the simulation of the same queues", "[rehearsal]") {
  const std::string k3 =
      " --model kimi-k3 --pp 8 --vp 1 --microbatches 32 --dtype fp32 --unit-bytes 64 --steps 1 "
      "--action-us F=100,I=100,W=100 --unit-us 20 --hop-us 0 --json --impair ";
  for (const auto& [impair, overhead] : {std::pair("lanes", 0.1149), std::pair("priority", 0.1501),
                                         std::pair("overlap", 0.2404), std::pair("single-stream", 0.6034)}) {
    const Run run = run_plumb("rehearse" + k3 + impair);
    INFO(impair << " " << run.err);
    REQUIRE(run.exit_code == 0);
    CHECK(json::parse(run.out)["predicted_overhead_over_standard"].get<double>() == Approx(overhead).margin(0.002));
  }
}

TEST_CASE("a log of a rehearsal is compared with the simulation of the same flags and no others", "[rehearsal]") {
  const std::string log = scratch_file("run.jsonl", "");
  const Run run = run_plumb("rehearse" + layout + costs + small + " --log " + log + " --trace trace.json");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Run against = run_plumb("sim" + layout + costs + " --against " + log + " --json");
  INFO(against.err);
  REQUIRE(against.exit_code == 0);
  const json result = json::parse(against.out);
  CHECK(result["actions"].size() == 2 * 2 * 2 * 4);  // ranks, virtual stages, F and B, microbatches
  CHECK(result["transfers"].size() > 0);
  CHECK(result["measured_step_us"].get<double>() > 0);
  CHECK(run_plumb("sim" + layout + costs + " --against " + log).out.find("transfers that added most") !=
        std::string::npos);

  const Run other = run_plumb("sim" + layout + costs + " --cache relay --against " + log);
  CHECK(other.exit_code == 2);
  CHECK(other.err.find("a log of another program") != std::string::npos);
  const Run no_log = run_plumb("sim" + layout + costs + " --against " + scratch_file("other.jsonl", "{\"a\":1}\n"));
  CHECK(no_log.exit_code == 2);
  CHECK(no_log.err.find("not an event log") != std::string::npos);
}

TEST_CASE("two outputs do not share a file, by whatever path", "[rehearsal]") {
  require_rehearse_refused(layout + costs + small + " --log out.jsonl --trace ./out.jsonl",
                           "--log and --trace name the same file");
  CHECK(run_plumb("rehearse" + layout + costs + small + " --log own.jsonl --trace own.json").exit_code == 0);
}

TEST_CASE("a log says how the rehearsal was impaired", "[rehearsal]") {
  const Run run = run_plumb("rehearse" + layout + costs + small +
                            " --impair overlap --log impaired.jsonl >/dev/null; head -n 1 impaired.jsonl");
  CHECK(run.out.find("\"made_by\":\"plumb rehearse --impair overlap\"") != std::string::npos);
}

TEST_CASE("times, sizes and costs that cannot be are refused with what is legal", "[rehearsal]") {
  require_rehearse_refused(layout + small + " --action-us F=0,I=1,W=1", "F takes no time");
  for (const char* residual : {"mhc:4", "deepnet", "muddformer"})
    require_rehearse_refused(layout + costs + small + " --residual " + residual, "not run: legal here are standard");
  require_rehearse_refused(layout + small + " --action-us F=-1,I=1,W=1", "--action-us F");
  require_rehearse_refused(layout + small + " --action-us F=1000", "no cost of B");
  require_rehearse_refused(layout + small + " --schedule zb-v --action-us F=1000,B=2000", "no cost of I");
  require_rehearse_refused(layout + small + " --unit-us 0", "--hop-GBps inf");
  require_rehearse_refused(layout + small + " --unit-us -3", "--unit-us");
  require_rehearse_refused(layout + small + " --hop-us -1", "--hop-us");
  for (const std::string bytes : {"0", "-4", "4097", "4294967296"})
    require_rehearse_refused(layout + costs + " --unit-bytes " + bytes, "--unit-bytes");
  require_rehearse_refused(
      " --pp 64 --vp 4 --microbatches 64 --sublayers 256 --block 1 --unit-bytes 1073741824" + costs, "GiB");
  require_rehearse_refused(layout + costs + " --steps 0", "--steps");
  require_rehearse_refused(layout + costs + " --links slow", "emulated");
  require_rehearse_refused(layout + costs + " --impair wires", "overlap");
  require_rehearse_refused(layout + costs + " --impair single-stream --links real", "--links emulated");
  require_rehearse_refused(layout + costs + " --ranks udp", "inproc");
  require_rehearse_refused(layout + costs + " --ranks mpi", "mpirun -n 2");
  require_rehearse_refused(" --pp 2 --vp 2 --microbatches 4 --sublayers 8 --block 2 --grad-wire storage" + costs,
                           "fp32");
}

// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include <nlohmann/json.hpp>

#include "cache/support/programs.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/simulator/trace.hpp"
#include "simulator/support/models.hpp"
#include "simulator/support/trace_rules.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

std::string trace_of(const Program& program, const CostModel& costs, const TraceOptions& options = {}) {
  std::ostringstream out;
  write_trace(out, program, costs, simulate(program, costs), options);
  return out.str();
}

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  const std::size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), with);
}

std::size_t num_computes(const Program& program) {
  std::size_t count = 0;
  for (const RankProgram& rank : program.ranks)
    count += rank.compute.size();
  return count;
}

}  // namespace

TEST_CASE("traces of any program and any costs keep every rule of the format", "[simulator]") {
  Dice dice(41);
  for (int round = 0; round < 60; ++round) {
    const Program program = random_program(dice, {.pp = 6, .vp = 3, .sublayers = 30, .microbatches = 6});
    CAPTURE(describe(program));
    const CostModel costs = round % 4 == 0   ? latency_only(us(700))
                            : round % 4 == 1 ? unit_time(us(60))
                                             : random_model(dice, program.layout.num_chunks());
    const TraceFindings findings = check_trace(trace_of(program, costs));
    CHECK(findings.faults == std::vector<std::string>{});
    CHECK(findings.num_slices >= static_cast<int>(num_computes(program) + 2 * program.messages.size()));
    CHECK(findings.num_flows == static_cast<int>(program.messages.size()));
    CHECK(findings.num_counters > 0);
  }
}

TEST_CASE("with a bandwidth and no latency each network end is one track", "[simulator]") {
  const std::string trace = trace_of(small_program(Policy::cached), unit_time(us(400)));
  CHECK(trace.find("send lane 0") != std::string::npos);
  CHECK(trace.find("send lane 1") == std::string::npos);
  CHECK(trace.find("receive lane 1") == std::string::npos);
}

TEST_CASE("a trace tells the computations and messages with their details", "[simulator]") {
  const Program program = small_program(Policy::cached);
  const nlohmann::json trace = nlohmann::json::parse(trace_of(program, unit_time(us(50))));
  CHECK(trace["metadata"]["cache"] == "cached");
  CHECK(trace["metadata"]["layout"] == "P=4 V=2 M=8 loop");
  std::size_t computes = 0;
  std::int64_t sent_bytes = 0;
  std::int64_t received_bytes = 0;
  bool starts_at_zero = false;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    starts_at_zero = starts_at_zero || event["ts"] == 0;
    if (event["cat"] == "compute") ++computes;
    if (event["cat"] != "p2p") continue;
    const std::string name = event["name"];
    (name.starts_with("send") ? sent_bytes : received_bytes) += event["args"]["bytes"].get<std::int64_t>();
  }
  CHECK(starts_at_zero);
  CHECK(computes == num_computes(program));
  std::int64_t units = 0;
  for (std::size_t m = 0; m < program.messages.size(); ++m)
    units += program.units(MessageId(m));
  CHECK(sent_bytes == 2000 * units);
  CHECK(received_bytes == sent_bytes);
}

TEST_CASE("a trace of chosen ranks or of a window is smaller and still keeps the rules", "[simulator]") {
  const Program program = small_program(Policy::cached);
  const CostModel costs = unit_time(us(50));
  const std::string whole = trace_of(program, costs);
  const std::string ranks = trace_of(program, costs, {.ranks = {RankId(1), RankId(2)}});
  CHECK(check_trace(ranks).faults == std::vector<std::string>{});
  CHECK(ranks.size() < whole.size());
  CHECK(ranks.find("\"rank 0\"") == std::string::npos);
  CHECK(ranks.find("\"rank 2\"") != std::string::npos);
  const std::string window = trace_of(program, costs, {.ranks = {}, .from = us(5000), .to = us(9000)});
  CHECK(check_trace(window).faults == std::vector<std::string>{});
  CHECK(window.size() < whole.size());
  const TraceFindings bare =
      check_trace(trace_of(program, costs, {.ranks = {}, .from = us(0), .to = {}, .memory = false}));
  CHECK(bare.faults == std::vector<std::string>{});
  CHECK(bare.num_counters == 0);
  CHECK_THROWS_AS(trace_of(program, costs, {.ranks = {RankId(4)}}), InputError);
}

TEST_CASE("control characters and quotes in names are escaped", "[simulator]") {
  Program program = small_program(Policy::relay);
  program.schedule_name = "a \"quoted\" \\ name\nwith\tcontrol \x01 characters";
  const std::string text = trace_of(program, free_links());
  CHECK(check_trace(text).faults == std::vector<std::string>{});
  CHECK(nlohmann::json::parse(text)["metadata"]["schedule"] == program.schedule_name);
}

TEST_CASE("the rule checker itself notices what Perfetto would drop or misread", "[simulator]") {
  const std::string good = trace_of(small_program(Policy::cached), unit_time(us(50)));
  REQUIRE(check_trace(good).faults.empty());
  const auto is_faulty = [](const std::string& text) { return !check_trace(text).faults.empty(); };
  CHECK(is_faulty(good.substr(0, good.size() - 4)));
  CHECK(is_faulty(" " + good.substr(1)));
  CHECK(is_faulty(replaced(good, "\"tid\":5", "\"tid\":0")));
  CHECK(is_faulty(replaced(good, "\"ts\":0.000", "\"ts\":0")));
  CHECK(is_faulty(replaced(good, "\"flow_in\":true", "\"flow_out\":true")));
  CHECK(is_faulty(replaced(good, "\"bind_id\":1,", "")));
  CHECK(is_faulty(replaced(good, "\"dur\":1000.000", "\"dur\":1000.001")));
  CHECK(is_faulty(replaced(good, "\"thread_name\"", "\"threadname\"")));
  CHECK(is_faulty(replaced(good, "\"name\":\"rank 0\"", "\"name\":\"rank 9\"")));
  CHECK(is_faulty(replaced(good, "\"ph\":\"C\"", "\"ph\":\"s\"")));
}

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
#include "support/refusals.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

std::string trace_of(const Program& program, const CostModel& costs, const TraceOptions& options = {}) {
  std::ostringstream out;
  write_trace(out, program, costs, simulate(program, costs), options);
  return out.str();
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

TEST_CASE("every rule of the trace format is noticed alone when it is broken", "[simulator]") {
  const std::string good =
      R"({"metadata":{"tool":"x"},"traceEvents":[
{"ph":"M","pid":1,"name":"process_name","args":{"name":"rank 0"}},
{"ph":"M","pid":1,"name":"process_sort_index","args":{"sort_index":0}},
{"ph":"M","pid":2,"name":"process_name","args":{"name":"rank 1"}},
{"ph":"M","pid":1,"tid":3,"name":"thread_name","args":{"name":"compute"}},
{"ph":"M","pid":1,"tid":4,"name":"thread_name","args":{"name":"send lane 0"}},
{"ph":"M","pid":2,"tid":5,"name":"thread_name","args":{"name":"receive lane 0"}},
{"ph":"X","pid":1,"tid":3,"ts":0.000,"dur":812.500,"name":"F","cat":"compute","args":{"mb":0}},
{"ph":"X","pid":1,"tid":3,"ts":900.000,"dur":10.000,"name":"B","cat":"compute","args":{"mb":0}},
{"ph":"X","pid":1,"tid":4,"ts":812.500,"dur":290.100,"name":"send","cat":"p2p","bind_id":1,"flow_out":true},
{"ph":"X","pid":2,"tid":5,"ts":812.500,"dur":300.100,"name":"recv","cat":"p2p","bind_id":1,"flow_in":true},
{"ph":"C","pid":1,"ts":812.500,"name":"memory","args":{"activations":1.25}}
]}
)";
  REQUIRE(check_trace(good).faults == std::vector<std::string>{});
  const std::string send = good.substr(good.find(R"({"ph":"X","pid":1,"tid":4)"),
                                       good.find(R"({"ph":"X","pid":2)") - good.find(R"({"ph":"X","pid":1,"tid":4)"));
  const auto resent = [&](std::string_view where) {  // the sending slice, moved
    const std::string gone = replaced(good, send, "");
    return replaced(gone, where, std::string(where) + ",\n" + send.substr(0, send.size() - 2));
  };
  struct Break {
    std::string_view what;
    std::string_view with;
    std::string_view fault;
  };
  const Break breaks[] = {
      {"{\"metadata", " {\"metadata", "does not begin like a trace"},
      {"]}\n", "]\n", "not JSON"},
      {"\"tool\":\"x\"", "\"tool\":\"\x02\"", "control character"},
      {"\"tool\":\"x\"", "\"tool\":\"\xff\"", "not JSON"},
      {"\"traceEvents\"", "\"events\"", "no array traceEvents"},
      {"\"metadata\":{\"tool\":\"x\"}", "\"displayTimeUnit\":\"ms\"", "unknown key displayTimeUnit"},
      {"\"metadata\":{\"tool\":\"x\"}", "\"metadata\":1", "no metadata"},
      {"\"ts\":0.000", "\"ts\":0", "three decimals"},
      {"\"ts\":900.000", "\"ts\":900.0000", "three decimals"},
      {"\"dur\":10.000", "\"dur\":1e1", "three decimals"},
      {"\"ts\":900.000", "\"ts\":\"900.000\"", "three decimals"},
      {"\"ts\":0.000,", "", "no time"},
      {"\"ts\":0.000", "\"ts\":-1.000", "no time"},
      {"\"dur\":10.000,", "", "no duration"},
      {"\"dur\":10.000", "\"dur\":-10.000", "no duration"},
      {"\"ph\":\"C\"", "\"ph\":\"s\"", "phase 's'"},
      {"\"ph\":\"C\"", "\"ph\":\"b\"", "phase 'b'"},
      {"\"pid\":1,\"tid\":3,\"ts\":0", "\"pid\":0,\"tid\":3,\"ts\":0", "process id"},
      {"\"pid\":1,\"tid\":3,\"ts\":0", "\"pid\":\"1\",\"tid\":3,\"ts\":0", "process id"},
      {"\"tid\":3,\"ts\":0", "\"tid\":0,\"ts\":0", "thread id is not an integer above 0"},
      {"\"tid\":3,\"ts\":0", "\"tid\":\"3\",\"ts\":0", "thread id is not an integer above 0"},
      {"\"tid\":3,\"ts\":0.000", "\"ts\":0.000", "slice has no thread"},
      {"\"pid\":2,\"tid\":5,\"ts\"", "\"pid\":1,\"tid\":5,\"ts\"", "belongs to two processes"},
      {"\"name\":\"rank 0\"", "\"name\":\"rank 9\"", "not the rank plus 1"},
      {"\"process_sort_index\"", "\"process_labels\"", "not read"},
      {"\"sort_index\":0", "\"sort_index\":\"0\"", "not read"},
      {"\"pid\":1,\"tid\":3,\"name\":\"thread_name\"", "\"pid\":1,\"tid\":6,\"name\":\"thread_name\"",
       "thread has no name"},
      {"{\"ph\":\"M\",\"pid\":2,\"name\":\"process_name\",\"args\":{\"name\":\"rank 1\"}},\n", "",
       "process has no name"},
      {"\"dur\":812.500", "\"dur\":905.000", "overlap without nesting"},
      {"\"name\":\"F\"", "\"cname\":\"good\",\"name\":\"F\"", "colours"},
      {"\"name\":\"F\",", "", "no name"},
      {"\"name\":\"memory\",", "", "no name"},
      {"\"activations\":1.25", "\"activations\":\"1.25\"", "not a number"},
      {"{\"activations\":1.25}", "{}", "no value"},
      {"\"ph\":\"C\",\"pid\":1", "\"ph\":\"C\",\"tid\":3,\"pid\":1", "belongs to a process"},
      {"\"bind_id\":1,\"flow_out\":true", "\"bind_id\":2,\"flow_out\":true", "one start and one end"},
      {"\"bind_id\":1,\"flow_out\":true", "\"bind_id\":1,\"flow_in\":true", "one start and one end"},
      {"\"bind_id\":1,\"flow_out\"", "\"bind_id\":\"1\",\"flow_out\"", "bind_id"},
      {"\"bind_id\":1,\"flow_out\"", "\"bind_id\":0,\"flow_out\"", "bind_id"},
      {"\"bind_id\":1,\"flow_out\"", "\"flow_out\"", "no bind_id"},
      {"\"flow_out\":true", "\"flow_out\":false", "not true"},
      {"\"flow_out\":true", "\"flow_out\":true,\"flow_in\":true", "not one end"},
      {"\"bind_id\":1,\"flow_in\":true", "\"bind_id\":1", "not one end"},
      {"\"tid\":5,\"ts\":812.500", "\"tid\":5,\"ts\":812.499", "ends before it starts"},
  };
  for (const Break& one : breaks) {
    CAPTURE(one.what, one.with, one.fault);
    std::string all;
    for (const std::string& fault : check_trace(replaced(good, one.what, one.with)).faults)
      all += fault + "\n";
    CAPTURE(all);
    CHECK(all.find(one.fault) != std::string::npos);
  }
  // At equal times the file decides: the same slices with the sender last.
  const std::string late = resent(R"("flow_in":true})");
  REQUIRE(late.size() == good.size());
  CHECK(check_trace(late).faults == std::vector<std::string>{"arrow 1 ends before it starts"});
  // A thread of one process with the id of another process.
  std::string same_ids = good;
  for (std::size_t at = same_ids.find("\"tid\":3"); at != std::string::npos; at = same_ids.find("\"tid\":3"))
    same_ids.replace(at, 7, "\"tid\":2");
  CHECK(check_trace(same_ids).faults == std::vector<std::string>{"a thread id equals a process id"});
  // Names that hold details: more of them than categories.
  std::string detailed = good;
  for (int i = 0; i < 13; ++i) {
    detailed = replaced(detailed, "{\"ph\":\"C\"",
                        "{\"ph\":\"X\",\"pid\":1,\"tid\":3,\"ts\":" + std::to_string(1000 + i) +
                            ".000,\"dur\":0.500,\"name\":\"F" + std::to_string(i) + "\"},\n{\"ph\":\"C\"");
  }
  CHECK(check_trace(detailed).faults == std::vector<std::string>{"the names of slices are not categories"});
  CHECK(check_trace(good, good.size() - 1).faults ==
        std::vector<std::string>{"the file is larger than a browser opens"});
}

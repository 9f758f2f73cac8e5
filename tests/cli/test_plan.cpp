// SPDX-License-Identifier: Apache-2.0
// What `plumb plan` explains, draws and compares, and what it refuses.
#include <algorithm>

#include <fmt/format.h>

#include "cli/answer.hpp"
#include "support/catch.hpp"
#include "support/sanitized.hpp"

using nlohmann::json;
using plumb::test::answer;
using plumb::test::fine;
using plumb::test::require_refused;
using plumb::test::Run;
using plumb::test::run_plumb;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const std::string vee = " --pp 4 --vp 2 --microbatches 8 --schedule ";

}  // namespace

TEST_CASE("the text of a plan gives phases, peaks and bubble with their formulas", "[cli]") {
  const std::string text = fine("plan --pp 4 --microbatches 8");
  CHECK(has(text, "warm-up   min(M, P-r) forwards on rank r"));
  CHECK(has(text, "peak      min(M, P-r) activations"));
  CHECK(has(text, "(P-1)(F+B) per rank, exact here: 9.000 ms by formula, 9.000 ms simulated (27.27 % of the step"));
  CHECK(has(text, "0           4       8          4                 4           4"));
}

TEST_CASE("formula and simulation of the bubble agree for every schedule where the formula is exact", "[cli]") {
  for (const std::string name : {"1f1b", "gpipe", "interleaved", "looped-bfs", "zb-h1", "zb-v"}) {
    const bool single = name == "1f1b" || name == "gpipe";
    const std::string text =
        fine(std::string("plan --pp 4 --microbatches 8 --vp ") + (single ? "1" : "2") + " --schedule " + name);
    INFO(text);
    const std::size_t at = text.find("exact here: ");
    REQUIRE(at != std::string::npos);
    const double formula = std::stod(text.substr(at + 12));
    CHECK(std::stod(text.substr(text.find("by formula, ", at) + 12)) == Approx(formula));
  }
}

TEST_CASE("phases of split backwards and overlapped pairs add up to all computations", "[cli]") {
  for (const std::string name : {"zb-v", "dualpipe-v", "v-half", "v-min"}) {
    const std::string text = fine("plan" + vee + name);
    std::string rows = text;
    std::replace(rows.begin(), rows.end(), '<', ' ');
    std::replace(rows.begin(), rows.end(), '=', ' ');
    std::size_t line = rows.find("\nrank  warm-up");
    line = rows.find('\n', line + 1);
    for (int rank = 0; rank < 4; ++rank) {
      int columns[6] = {};
      REQUIRE(std::sscanf(rows.c_str() + line + 1, "%d %d %d %d %d %d", &columns[0], &columns[1], &columns[2],
                          &columns[3], &columns[4], &columns[5]) == 6);
      INFO(name << " rank " << rank << "\n" << text);
      CHECK(columns[0] == rank);
      const int sum = columns[1] + columns[2] + columns[3];
      CHECK(sum >= 2 * 16);  // F and B of 8 microbatches on 2 chunks
      CHECK(sum <= 3 * 16);  // all backwards split
      CHECK(columns[4] <= columns[5]);
      CHECK(has(text, "<=") == (name == "v-half" || name == "v-min"));  // only an upper bound is known there
      line = rows.find('\n', line + 1);
    }
  }
}

TEST_CASE("steady and cool-down counts come with a formula where there is one", "[cli]") {
  CHECK(has(fine("plan --pp 4 --vp 2"), "steady    2(M V - warm-up), backward and forward in turn"));
  CHECK(has(fine("plan --pp 4 --vp 2 --schedule zb-h1"), "W lagging by r"));
  CHECK(has(fine("plan" + vee + "zb-v"), "cool-down 2(P+1+r)"));
  CHECK(has(fine("plan" + vee + "dualpipe-v"), "cool-down 2P+1+r"));
  CHECK(has(fine("plan" + vee + "v-min"), "counted"));
}

TEST_CASE("links given to plan show up as waiting for messages", "[cli]") {
  CHECK(has(fine("plan --pp 4 --hop-us 300 --hop-GBps inf"), "of it waiting for messages"));
  CHECK(has(fine("plan --pp 4 --action-us F=1,I=3,W=1 --vp 2 --schedule zb-v"), "not here"));
  CHECK(has(fine("plan --pp 2 --action-us F=1000,B=2500"), "simulated"));
}

TEST_CASE("a plan without a depth is one of an ordinary residual", "[cli]") {
  CHECK(has(fine("plan --pp 2"), "no depth given"));
  CHECK(has(fine("plan --pp 2 --layers 8"), "routing cached"));
  require_refused("plan --pp 2 --cache relay", "no depth given");
  require_refused("plan --pp 2 --block 2", "no depth given");
  const json program = answer("plan --pp 2");
  CHECK(program.at("depth").at("residual") == "standard");
  CHECK(has(fine("plan --pp 4 --compare 1f1b,gpipe"), "no depth given"));
  require_refused("sim --pp 4 --compare 1f1b,gpipe", "no depth given: use --model");
}

TEST_CASE("drawings name the schedule and go to a file or to stdout", "[cli]") {
  for (const std::string name : {"zb-v", "dualpipe-v", "v-half", "v-min", "interleaved", "looped-bfs", "zb-h1"}) {
    const std::string svg = fine("plan --format svg" + vee + name);
    CHECK(svg.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg "));
    CHECK(svg.ends_with("</svg>\n"));
    CHECK(has(svg, ">" + name + "</text>"));
    CHECK(fine("plan --format svg -o d.svg" + vee + name).empty());
    CHECK(fine("--version >/dev/null; cat d.svg") == svg);
  }
  const std::string routed = fine("plan --pp 4 --layers 8 --format svg --cache relay");
  CHECK(has(routed, "routing relay"));
  CHECK(has(routed, "8 decoder layers"));
}

TEST_CASE("a plan's trace is JSON for Perfetto", "[cli]") {
  const json trace = json::parse(fine("plan --format trace" + vee + "zb-v"));
  CHECK(trace.at("traceEvents").size() > 4 * 48);
  CHECK(fine("plan --format trace -o t.json" + vee + "zb-v").empty());
  CHECK(json::parse(fine("--version >/dev/null; cat t.json")) == trace);
}

TEST_CASE("schedules are set side by side on the same model", "[cli]") {
  const std::string flags = " --pp 4 --vp 2 --microbatches 8 --layers 16 --hop-us 0 --hop-GBps inf";
  const json rows = answer("plan --compare 1f1b,interleaved,zb-v" + flags).at("schedules");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].at("schedule") == "1f1b");
  CHECK(rows[0].at("vp") == 1);
  CHECK(rows[0].at("step_us") == Approx(66000));  // (8 + 3) chunks of twice the depth
  CHECK(rows[1].at("step_us") == Approx(57000));
  CHECK(rows[2].at("step_us") == Approx(51000));
  CHECK(rows[2].at("placement") == "vee");
  for (const json& row : rows)
    CHECK(row.at("traffic_equals_formula") == true);
  CHECK(answer("sim --compare 1f1b,interleaved,zb-v" + flags).at("schedules") == rows);
  CHECK(answer("plan --compare all" + flags).at("schedules").size() == 9);
}

TEST_CASE("a comparison, a plan and a simulation of one schedule agree", "[cli]") {
  // Uneven chunks, 93 decoder layers on 32 chunks.
  const std::string flags = " --model kimi-k3 --pp 8 --vp 4 --microbatches 16";
  for (const std::string costs : {"", " --costs depth", " --costs model", " --unit-us 100 --hop-us 0"}) {
    const double simulated = answer("sim" + flags + costs).at("step_us");
    INFO(costs);
    CHECK(answer("sim --compare interleaved" + flags + costs).at("schedules")[0].at("step_us") == Approx(simulated));
    const double compared = answer("plan --compare interleaved" + flags + costs).at("schedules")[0].at("step_us");
    const std::string text = fine("plan" + flags + costs);
    CHECK(has(text, fmt::format("{:.3f} ms", compared / 1000)));
    CHECK(has(text, costs.starts_with(" --unit") ? "us per tensor" : "messages are free"));
  }
  CHECK(answer("plan --compare interleaved" + flags).at("costs") ==
        "F, I, W, B = 1000, 1000, 1000, 2000 us per chunk; messages are free");
}

TEST_CASE("auto is compared like any other, within its limit and with what it chose", "[cli]") {
  const std::string flags = " --pp 2 --vp 2 --microbatches 4 --layers 9";
  const std::vector<std::string> commands = {"plan", "sim --hop-GBps inf --hop-us 0"};
  const auto num_commands = static_cast<std::size_t>(plumb::test::rounds(2, 1));
  for (const std::string& command : std::span(commands).first(num_commands)) {
    const json rows = answer(command + " --compare interleaved,auto,zb-v --costs depth" + flags).at("schedules");
    REQUIRE(rows.size() == 3);
    CHECK(rows[1].at("schedule") == "auto");
    CHECK(rows[1].at("chosen").is_string());
    CHECK(rows[1].at("step_us") <= rows[0].at("step_us"));
    CHECK(rows[1].at("step_us") <= rows[2].at("step_us"));
    const json tight = answer(command + " --compare zb-v,auto --memory-chunks 2" + flags);
    CHECK(tight.at("schedules")[1].at("peak_activation_chunks") <= 2);
    const json none = answer(command + " --compare zb-v,auto --memory-chunks 1" + flags);
    CHECK(has(none.at("schedules")[1].at("refused"), "the limit is 1"));
  }
  CHECK(has(fine("plan --compare auto" + flags), "auto chose "));
}

TEST_CASE("auto says what it chose and from where, cuts by traffic what they are", "[cli]") {
  const std::string flags = " --pp 2 --vp 2 --microbatches 4 --layers 9 --cuts auto";
  const std::string text = fine("plan --schedule auto" + flags);
  CHECK(has(text, "auto chose "));
  CHECK(has(text, "no order can take less than "));
  CHECK(has(text, "; cuts "));
  const std::string free = flags + " --hop-GBps inf --hop-us 0";  // searched no longer than until the bound is met
  const json sim = answer("sim --schedule auto" + free);
  CHECK(sim.at("cuts").size() == 4);
  CHECK(sim.at("cuts")[3] == 18);
  CHECK(sim.at("auto").at("chosen").is_string());
  CHECK(sim.at("auto").at("step_us") == sim.at("step_us"));
  CHECK(sim.at("auto").at("lower_bound_us") <= sim.at("step_us"));
  CHECK(has(fine("sim --schedule auto" + free), "chosen"));
  const Run program = run_plumb("plan --json --schedule auto" + flags);
  CHECK(program.exit_code == 0);
  CHECK(program.err.starts_with("auto chose "));
  CHECK(json::parse(program.out).at("depth").at("cuts").size() == 4);
}

TEST_CASE("one communication stream per rank is never faster than free channels", "[cli]") {
  const std::string flags = "sim --pp 4 --vp 2 --layers 16 --unit-us 100";
  const json free = answer(flags);
  const json single = answer(flags + " --single-stream");
  CHECK(single.at("step_us") > free.at("step_us"));
  const json compared = answer(flags + " --single-stream --compare interleaved").at("schedules")[0];
  CHECK(compared.at("step_us") == single.at("step_us"));
  CHECK(single.at("traffic") == free.at("traffic"));
}

TEST_CASE("a schedule that does not fit is a row with its reason", "[cli]") {
  const std::string flags = " --pp 4 --vp 2 --microbatches 6 --layers 16";
  const std::string table = fine("plan --compare dualpipe-v,interleaved,zb-v" + flags);
  CHECK(has(table, "dualpipe-v does not fit: "));
  CHECK(has(table, "zb-v"));
  const json rows = answer("plan --compare dualpipe-v,zb-v" + flags).at("schedules");
  CHECK(rows[0].at("refused").is_string());
  CHECK(rows[1].at("refused").is_null());
  require_refused("plan --compare dualpipe-v" + flags, "none of the schedules fits");
}

TEST_CASE("comparisons refuse what they would ignore", "[cli]") {
  const std::string depth = " --pp 4 --vp 2 --layers 16";
  require_refused("plan --compare 1f1b,1f1b" + depth, "twice");
  require_refused("plan --compare 1f1b,zb-q" + depth, "zb-q");
  require_refused("plan --compare 1f1b," + depth, "''");
  require_refused("plan --compare 1f1b --schedule gpipe" + depth, "--schedule");
  require_refused("plan --compare zb-v --placement vee" + depth, "--placement");
  require_refused("plan --compare 1f1b --format svg" + depth, "svg");
  require_refused("plan --compare 1f1b,gpipe --group 4" + depth, "--group");
  require_refused("plan --compare 1f1b --pp 0 --layers 4", "1..4096");
  require_refused("sim --compare 1f1b --trace t.json" + depth, "--trace");
  require_refused("sim --compare 1f1b --compare-cache" + depth, "--compare-cache");
  require_refused("plan --compare 1f1b --memory-chunks 4" + depth, "--memory-chunks is the limit of auto");
  require_refused("sim --compare 1f1b --against log" + depth, "--against");
}

TEST_CASE("times in a format without times are refused", "[cli]") {
  require_refused("plan --format csv --hop-us 3", "--hop-us");
  require_refused("plan --format csv --action-us F=3", "--action-us");
  require_refused("plan --format svgz", "svg");
  require_refused("plan --format svg --json --layers 4", "exclude");
  require_refused("plan --format svg --unit-us 4 --hop-GBps 3", "exclude");
}

// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include "cache/support/programs.hpp"
#include "plumb/rehearsal/launch.hpp"
#include "plumb/rehearsal/report.hpp"
#include "plumb/runtime/event_log.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/against.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

struct Logged {
  RehearsalPlan plan;
  std::vector<RankOutcome> outcomes;
  std::string text;
};

Logged logged_run(Policy policy, bool emulate_links = true) {
  const SlotShape shape{1, 256, Storage::fp32};
  const UnitBytes bytes{1024, 1024, 1024};
  Logged run{
      .plan = {.program = std::make_shared<const Program>(small_program(policy)),
               .costs = CostModel(action_times(300us, 300us, 300us), link_from_unit_time(10us, 30us, bytes), bytes),
               .shape = shape},
      .outcomes = {},
      .text = {}};
  run.plan.steps = 3;
  LaunchOptions options;
  options.emulate_links = emulate_links;
  run.outcomes = rehearse_on_threads(run.plan, options);
  std::ostringstream out;
  write_log_header(out, *run.plan.program, shape, "a test");
  for (std::size_t step = 0; step < 3; ++step) {
    for (std::size_t rank = 0; rank < run.outcomes.size(); ++rank) {
      const MeasuredStep& measured = run.outcomes[rank].program[step];
      write_log_step(out, *run.plan.program, RankId(rank), measured.record, measured.agreed_start_ns);
    }
  }
  run.text = out.str();
  return run;
}

MeasuredLog read(const std::string& text, const Program& program) {
  std::istringstream in(text);
  return read_event_log(in, "run.jsonl", program);
}

// A log keeps nanoseconds.
bool is_near(SimTime a, SimTime b) { return a - b <= SimTime(2000) && b - a <= SimTime(2000); }

}  // namespace

TEST_CASE("a log read back is the step that was measured", "[rehearsal]") {
  for (const bool emulate : {true, false}) {
    const Logged run = logged_run(Policy::cached, emulate);
    const Program& program = *run.plan.program;
    const MeasuredLog log = read(run.text, program);
    CHECK(log.made_by == "a test");
    REQUIRE(log.steps.size() == 3);
    std::vector<const MeasuredStep*> ranks;
    for (const RankOutcome& outcome : run.outcomes)
      ranks.push_back(&outcome.program[1]);
    const Timeline expected = timeline_of(program, ranks);
    const Timeline& got = log.steps[1];
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      for (std::size_t i = 0; i < got.ranks[r].compute.size(); ++i) {
        REQUIRE(is_near(got.ranks[r].compute[i].start, expected.ranks[r].compute[i].start));
        REQUIRE(is_near(got.ranks[r].compute[i].end, expected.ranks[r].compute[i].end));
      }
    }
    for (std::size_t m = 0; m < got.messages.size(); ++m) {
      REQUIRE(is_near(got.messages[m].start, expected.messages[m].start));
      REQUIRE(is_near(got.messages[m].arrived, expected.messages[m].arrived));
      REQUIRE(got.messages[m].units == expected.messages[m].units);
      REQUIRE(got.messages[m].start >= got.messages[m].send_ready);
    }
  }
}

TEST_CASE("a delay in a measured step is blamed on the action that had it", "[rehearsal]") {
  const Logged run = logged_run(Policy::cached);
  const Program& program = *run.plan.program;
  const Timeline predicted = simulate(program, run.plan.costs);
  Timeline measured = predicted;
  measured.ranks[1].compute.back().end += SimTime(7'000'000);
  const Against against = compare_against(program, predicted, measured);
  int blamed = 0;
  for (const ActionAgainst& action : against.actions) {
    if (action.added == SimTime(0)) continue;
    ++blamed;
    CHECK(action.rank == RankId{1});
    CHECK(action.action == program.ranks[1].compute.back().compute);
    CHECK(action.added == SimTime(7'000'000));
  }
  CHECK(blamed == 1);
  for (const TransferAgainst& transfer : against.transfers)
    CHECK(transfer.added == SimTime(0));
}

TEST_CASE("logs that are cut, damaged or of another program are refused with the place", "[rehearsal]") {
  const Logged run = logged_run(Policy::relay);
  const Program& program = *run.plan.program;
  const std::string& text = run.text;
  CHECK_THROWS_WITH(read("", program), Contains("the file is empty"));
  CHECK_THROWS_WITH(read("{\"step\":1}\n", program), Contains("not an event log"));
  CHECK_THROWS_WITH(read(text, small_program(Policy::cached)), Contains("a log of another program"));
  const std::size_t last_line = text.rfind('\n', text.size() - 2);
  CHECK_THROWS_WITH(read(text.substr(0, last_line + 1), program), Contains("is not complete"));
  CHECK_THROWS_WITH(read(text.substr(0, last_line + 5), program), Contains("it was cut off"));
  CHECK_THROWS_WITH(read(text.substr(0, last_line + 5) + "\n", program), Contains("no JSON object"));
  CHECK_THROWS_WITH(read(text.substr(0, text.find('\n') + 1), program), Contains("no steps"));
  CHECK_THROWS_WITH(read(text + "{\"step\":1,\"rank\":99,\"compute\":0}\n", program), Contains("\"rank\""));
  CHECK_NOTHROW(read(text + "{\"loss\":1}\n", program));
  CHECK_THROWS_WITH(read(text + "{\"loss\":1}", program), Contains("it was cut off"));
  CHECK_THROWS_WITH(read(text + text.substr(last_line + 1), program), Contains("the second line of the same thing"));
  for (const char* field : {"\"compute\":1,", "\"rank\":1,\"start_us\"", "\"comm\":0,"}) {
    // As another entry that is there already, so that one has two lines and one has none.
    std::string edited = text;
    const std::size_t digit = edited.find(field) + std::string_view(field).find(':') + 1;
    edited[digit] = edited[digit] == '0' ? '1' : '0';
    CHECK_THROWS_AS(read(edited, program), InputError);
  }
  for (const std::string_view field : {"\"end_us\":", "\"finished_us\":"}) {
    std::string edited = text;
    edited.insert(edited.find(field) + field.size(), "-1");
    CHECK_THROWS_WITH(read(edited, program), Contains("is before the beginning"));
  }
  const auto with = [&](const std::string& field, const std::string& value) {
    std::string edited = text;
    std::size_t at = edited.find("\"" + field + "\":");
    while (edited.compare(at + field.size() + 3, 4, "null") == 0)
      at = edited.find("\"" + field + "\":", at + 1);
    const std::size_t begin = at + field.size() + 3;
    return edited.replace(begin, edited.find_first_of(",}", begin) - begin, value);
  };
  CHECK_THROWS_WITH(read(with("started_us", "1e11"), program), Contains("\"started_us\" is after the end"));
  CHECK_THROWS_WITH(read(with("consumed_us", "-1e11"), program), Contains("\"consumed_us\" is before the end"));
  CHECK_THROWS_WITH(read(with("consumed_us", "\"soon\""), program), Contains("\"consumed_us\" is not a time"));
  CHECK_THROWS_WITH(read(with("made_by", "3"), program), Contains("\"made_by\" is no text"));
  CHECK_THROWS_WITH(read(with("pp", "7"), program), Contains("\"pp\" is 7, in the program it is"));
  CHECK_THROWS_WITH(read(with("cache", "\"naive\""), program), Contains("in the program it is \"relay\""));
}

TEST_CASE("a line of a log that says something else of the program than the program does is refused", "[rehearsal]") {
  const Logged run = logged_run(Policy::cached);
  const Program& program = *run.plan.program;
  // The first line that has the field says something else.
  const auto edited = [&](const std::string& field, const std::string& value) {
    const std::string name = "\"" + field + "\":";
    const std::size_t begin = run.text.find(name, run.text.find('\n')) + name.size();
    return run.text.substr(0, begin) + value + run.text.substr(run.text.find(',', begin));
  };
  CHECK_NOTHROW(read(run.text, program));
  CHECK_THROWS_WITH(read(edited("action", "\"7F7\""), program),
                    Contains("\"action\" is \"7F7\", in the program it is"));
  CHECK_THROWS_WITH(read(edited("message", "123456"), program), Contains("\"message\" is 123456"));
  CHECK_THROWS_WITH(read(edited("peer", "77"), program), Contains("\"peer\" is 77"));
  CHECK_THROWS_WITH(read(edited("units", "99"), program), Contains("\"units\" is 99"));
}

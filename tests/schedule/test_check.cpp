// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <random>

#include <fmt/format.h>

#include "plumb/schedule/check.hpp"
#include "plumb/schedule/generators.hpp"
#include "requests.hpp"
#include "support.hpp"

namespace plumb {
namespace {

using Catch::Matchers::Contains;
using test::input_error_of;
using test::makespan;

using Tokens = std::vector<std::vector<const char*>>;

Schedule schedule_of(const Layout& layout, const Tokens& rows, bool forward_only = false) {
  Schedule schedule{"test", layout, {}, forward_only};
  for (const auto& row : rows) {
    schedule.ranks.emplace_back();
    for (const char* token : row)
      schedule.ranks.back().push_back(parse_action(token));
  }
  return schedule;
}

// The fault with this text, which must be among those found.
ScheduleFault fault_with(const ScheduleCheck& check, const std::string& why) {
  for (const ScheduleFault& fault : check.faults) {
    if (fault.why.find(why) != std::string::npos) return fault;
  }
  FAIL("no fault says: " << why);
  return {};
}

void check_only_fault(const Schedule& schedule, RankId rank, std::size_t column, const char* token, const char* why) {
  const ScheduleCheck check = check_schedule(schedule);
  REQUIRE(check.faults.size() == 1);
  CHECK(check.faults[0].rank == rank);
  CHECK(check.faults[0].column == column);
  CHECK(check.faults[0].token == token);
  CHECK_THAT(check.faults[0].why, Contains(why));
  CHECK(check.cycle.empty());
  CHECK_FALSE(check.ok());
}

TEST_CASE("a missing action is found and named", "[schedule]") {
  check_only_fault(schedule_of(Layout(1, 1, 2), {{"0F0", "0B0", "0F1"}}), RankId(0), 3, "0B1", "is missing");
  check_only_fault(schedule_of(Layout(1, 1, 2), {{"0F0", "0B0", "0B1"}}), RankId(0), 3, "0F1", "is missing");
  check_only_fault(schedule_of(Layout(1, 1, 1), {{"0F0", "0I0"}}), RankId(0), 2, "0W0", "is missing");
  check_only_fault(schedule_of(Layout(1, 1, 1), {{"0F0", "0W0"}}), RankId(0), 2, "0I0", "is missing");
}

TEST_CASE("microbatches of which nothing is there are one fault, at the number that makes them missing", "[schedule]") {
  // The 9 was meant as a 1.
  const ScheduleCheck check = check_schedule(schedule_of(Layout(1, 1, 10), {{"0F0", "0B0", "0F9", "0B1"}}));
  REQUIRE(check.faults.size() == 3);
  CHECK(check.faults[0].column == 2);
  CHECK(check.faults[0].token == "0F9");
  CHECK_THAT(check.faults[0].why, Contains("microbatches 2 to 8 have no action at all, but here is a higher one"));
  CHECK(check.faults[1].token == "0F1");
  CHECK(check.faults[2].token == "0B9");
  const ScheduleCheck end = check_schedule(schedule_of(Layout(1, 1, 2), {{"0F0", "0B0"}}));
  REQUIRE(end.faults.size() == 1);
  CHECK_THAT(end.faults[0].why, Contains("microbatch 1 has no action at all"));
}

TEST_CASE("every single action left out of a schedule is found", "[schedule]") {
  const Schedule whole = interleaved(Layout(3, 2, 6), 3);
  for (std::size_t r = 0; r < whole.ranks.size(); ++r) {
    for (std::size_t i = 0; i < whole.ranks[r].size(); ++i) {
      Schedule schedule = whole;
      schedule.ranks[r].erase(schedule.ranks[r].begin() + static_cast<std::ptrdiff_t>(i));
      const ScheduleCheck check = check_schedule(schedule);
      REQUIRE(check.faults.size() == 1);
      REQUIRE(check.faults[0].rank == RankId(r));
      REQUIRE(check.faults[0].token == to_string(whole.ranks[r][i]));
    }
  }
}

TEST_CASE("an action that runs twice is found where it does", "[schedule]") {
  for (const char* token : {"0F0", "0B0"}) {
    check_only_fault(schedule_of(Layout(1, 1, 1), {{"0F0", "0B0", token}}), RankId(0), 2, token, "second time");
  }
  check_only_fault(schedule_of(Layout(1, 1, 1), {{"0F0", "0I0", "0W0", "0W0"}}), RankId(0), 3, "0W0", "second time");
}

TEST_CASE("a chunk on the wrong rank is found", "[schedule]") {
  const Schedule schedule = schedule_of(Layout(2, 1, 1), {{"0F0", "1B0", "0B0"}, {"1F0"}});
  check_only_fault(schedule, RankId(0), 1, "1B0", "chunk 1 belongs to rank 1 in placement loop");
}

TEST_CASE("a chunk or microbatch out of range is found", "[schedule]") {
  Schedule schedule = one_f_one_b(Layout(1, 1, 1));
  schedule.ranks[0].push_back(parse_action("1F0"));
  check_only_fault(schedule, RankId(0), 2, "1F0", "no chunk 1");
  schedule.ranks[0].back() = parse_action("0F1");
  check_only_fault(schedule, RankId(0), 2, "0F1", "no microbatch 1");
  for (const int bad : {-1, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
    schedule.ranks[0].back().first = {Op::forward, ChunkId(bad), Microbatch(0)};
    CHECK_THAT(check_schedule(schedule).faults.at(0).why, Contains("no chunk"));
    schedule.ranks[0].back().first = {Op::forward, ChunkId(0), Microbatch(bad)};
    CHECK_THAT(check_schedule(schedule).faults.at(0).why, Contains("no microbatch"));
  }
}

TEST_CASE("a backward before its forward and a W before its I are found", "[schedule]") {
  check_only_fault(schedule_of(Layout(1, 1, 1), {{"0B0", "0F0"}}), RankId(0), 1, "0F0", "after its own backward");
  check_only_fault(schedule_of(Layout(1, 1, 1), {{"0I0", "0F0", "0W0"}}), RankId(0), 1, "0F0",
                   "after its own backward");
  check_only_fault(schedule_of(Layout(1, 1, 1), {{"0F0", "0W0", "0I0"}}), RankId(0), 2, "0I0", "after its own weight");
}

TEST_CASE("a full and a split backward of one microbatch are found", "[schedule]") {
  check_only_fault(schedule_of(Layout(1, 1, 1), {{"0F0", "0B0", "0W0"}}), RankId(0), 2, "0W0", "do not go together");
  const ScheduleCheck check = check_schedule(schedule_of(Layout(1, 1, 1), {{"0F0", "0I0", "0W0", "0B0"}}));
  CHECK(fault_with(check, "do not go together").column == 3);
  CHECK(check_schedule(schedule_of(Layout(1, 1, 2), {{"0F0", "0B0", "0F1", "0I1", "0W1"}})).ok());
}

TEST_CASE("missing and surplus and empty rows are found once each", "[schedule]") {
  Schedule schedule = one_f_one_b(Layout(4, 1, 8));
  schedule.ranks.pop_back();
  ScheduleCheck check = check_schedule(schedule);
  REQUIRE(check.faults.size() == 1);
  CHECK_THAT(check.faults[0].why, Contains("3 rows") && Contains("4 ranks"));
  CHECK(check.faults[0].rank == RankId(3));

  schedule = one_f_one_b(Layout(4, 1, 8));
  schedule.ranks[2].clear();
  check_only_fault(schedule, RankId(2), 0, "", "runs nothing");

  schedule = one_f_one_b(Layout(4, 1, 8));
  schedule.ranks.emplace_back();
  CHECK(fault_with(check_schedule(schedule), "5 rows").rank == RankId(4));

  schedule.ranks.clear();
  CHECK_FALSE(check_schedule(schedule).ok());
}

TEST_CASE("a forward-only schedule is legal if it says so", "[schedule]") {
  const Tokens rows{{"0F0", "0F1"}, {"1F0", "1F1"}};
  CHECK(check_schedule(schedule_of(Layout(2, 1, 2), rows, true)).ok());
  check_only_fault(schedule_of(Layout(2, 1, 2), rows, false), RankId(0), 0, "", "not marked forward-only");
  Schedule schedule = one_f_one_b(Layout(2, 1, 2));
  schedule.forward_only = true;
  check_only_fault(schedule, RankId(0), 0, "", "holds backwards");
}

TEST_CASE("an order in which two ranks wait for each other is found with its cycle", "[schedule]") {
  // Rank 0 wants the backward of microbatch 0 before it runs the forward that rank 1 asks for first.
  const Schedule schedule = schedule_of(Layout(2, 1, 2), {{"0F0", "0B0", "0F1", "0B1"}, {"1F1", "1B1", "1F0", "1B0"}});
  const ScheduleCheck check = check_schedule(schedule);
  CHECK(check.faults.empty());
  REQUIRE(check.cycle.size() == 4);
  const char* tokens[] = {"0B0", "1B0", "1F1", "0F1"};
  const char* whys[] = {"waits for 1B0 on rank 1", "stands behind 1F1", "waits for 0F1 on rank 0", "stands behind 0B0"};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(check.cycle[i].token == tokens[i]);
    CHECK(check.cycle[i].why == whys[i]);
    const ScheduleFault& fault = check.cycle[i];
    CHECK(to_string(schedule.ranks[fault.rank.index()][fault.column]) == fault.token);
  }
  CHECK_THAT(input_error_of([&] { require_legal(schedule); }),
             Contains("wait for each other") && Contains("rank 1, action 0 (1F1): waits for 0F1 on rank 0"));
}

TEST_CASE("a rank that runs its chunks in the wrong order waits for itself", "[schedule]") {
  const Schedule schedule = schedule_of(Layout(1, 2, 1), {{"1F0", "0F0", "1B0", "0B0"}});
  const ScheduleCheck check = check_schedule(schedule);
  REQUIRE(check.cycle.size() == 2);
  CHECK(check.cycle[0].token == "1F0");
  CHECK(check.cycle[1].token == "0F0");
}

TEST_CASE("an overlapped pair whose halves need each other is found", "[schedule]") {
  const Schedule schedule = schedule_of(Layout(1, 1, 1), {{"(0F0;0B0)OVERLAP_F_B"}});
  const ScheduleCheck check = check_schedule(schedule);
  CHECK(check.cycle.empty());
  CHECK(fault_with(check, "cannot hold a forward and its own backward").token == "(0F0;0B0)OVERLAP_F_B");
}

// Each entry waits for the next one, the last for the first: by an input, or by standing behind it on the same rank.
void require_true_cycle(const Schedule& schedule, const std::vector<ScheduleFault>& cycle) {
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    const ScheduleFault& from = cycle[i];
    const ScheduleFault& to = cycle[(i + 1) % cycle.size()];
    const Compute& needs = schedule.ranks[from.rank.index()][from.column].first;
    const Compute& gives = schedule.ranks[to.rank.index()][to.column].first;
    REQUIRE(to_string(needs) == from.token);
    const bool behind = from.rank == to.rank && from.column > to.column;
    const bool same_microbatch = needs.microbatch == gives.microbatch;
    const bool forward_input = needs.op == Op::forward && gives.op == Op::forward && needs.chunk == gives.chunk.next();
    const bool backward_input =
        needs.op == Op::backward && gives.op == Op::backward && needs.chunk == gives.chunk.previous();
    const bool own_forward = needs.op == Op::backward && gives.op == Op::forward && needs.chunk == gives.chunk;
    REQUIRE((behind || (same_microbatch && (forward_input || backward_input || own_forward))));
  }
}

TEST_CASE("the order check agrees with running shuffled schedules", "[schedule]") {
  std::mt19937 random(7);
  int stuck = 0;
  int ran = 0;
  for (int i = 0; i < 3000; ++i) {
    const int pp = std::uniform_int_distribution(1, 4)(random);
    const int vp = std::uniform_int_distribution(1, 3)(random);
    Schedule schedule = interleaved(Layout(pp, vp, 2 * pp), pp);
    for (int swaps = std::uniform_int_distribution(1, 6)(random); swaps > 0; --swaps) {
      auto& actions = schedule.ranks[std::uniform_int_distribution<std::size_t>(0, schedule.ranks.size() - 1)(random)];
      const auto at = std::uniform_int_distribution<std::size_t>(0, actions.size() - 2)(random);
      std::swap(actions[at], actions[at + 1]);
    }
    const ScheduleCheck check = check_schedule(schedule);
    const bool runs = makespan(schedule).has_value();
    REQUIRE(check.ok() == runs);
    require_true_cycle(schedule, check.cycle);
    stuck += check.cycle.empty() ? 0 : 1;
    ran += runs ? 1 : 0;
  }
  CHECK(stuck > 100);
  CHECK(ran > 100);
}

// Adds `by` to the microbatch of what `which` picks.
template <class Which>
Schedule renumbered(Schedule schedule, int by, Which&& which) {
  const auto shift = [&](Compute& compute) { compute.microbatch.value += which(compute) ? by : 0; };
  int most = 0;
  for (auto& actions : schedule.ranks) {
    for (Action& action : actions) {
      shift(action.first);
      if (action.second) shift(*action.second);
      most = std::max(most, action.first.microbatch.value);
      if (action.second) most = std::max(most, action.second->microbatch.value);
    }
  }
  schedule.layout = schedule.layout.with_microbatches(most + 1);
  return schedule;
}

TEST_CASE("microbatches that are not numbered from 0 are the only fault reported", "[schedule]") {
  std::size_t checked = 0;
  test::for_each_request({.max_pp = 4, .max_vp = 2}, [&](const ScheduleRequest& request, const Layout& layout) {
    const Schedule right = make_schedule(request, layout);
    const int m = layout.microbatches();
    for (const int by : {1, 3}) {
      CAPTURE(right.name, layout.pp(), layout.vp(), m, by);
      const auto check_all = [&](const Schedule& wrong) {
        const ScheduleCheck check = check_schedule(wrong);
        REQUIRE(check.faults.size() == 1);
        CHECK(check.faults[0].rank == RankId(0));
        CHECK(check.faults[0].column == 0);
        CHECK(check.faults[0].token == to_string(Compute{Op::forward, ChunkId(0), Microbatch(by)}));
        CHECK_THAT(check.faults[0].why, Contains(fmt::format("microbatches are numbered {}", by)));
      };
      check_all(renumbered(right, by, [](const Compute&) { return true; }));

      const ChunkId last(layout.num_chunks() - 1);
      const Schedule wrong =
          renumbered(right, by, [&](const Compute& c) { return c.chunk == last && c.op == Op::forward; });
      const ScheduleCheck check = check_schedule(wrong);
      REQUIRE(check.faults.size() == 1);
      const ScheduleFault& fault = check.faults[0];
      CHECK(fault.token == to_string(Compute{Op::forward, last, Microbatch(by)}));
      CHECK_THAT(to_string(wrong.ranks[fault.rank.index()][fault.column]), Contains(fault.token));
      CHECK_THAT(fault.why, Contains(fmt::format("the forwards of chunk {} are numbered {}", last.value, by)));
      CHECK((fault.why.find("torch") != std::string::npos) == (by == 1 && layout.vp() == 1));
      ++checked;
    }
  });
  CHECK(checked > 500);
}

TEST_CASE("backwards and weight gradients that are numbered from 1 are named", "[schedule]") {
  const Schedule plain = one_f_one_b(Layout(4, 1, 8));
  const Schedule split = zb_h1(Layout(4, 2, 8), 4);
  const auto faults = [](const Schedule& schedule) { return check_schedule(schedule).faults; };
  auto found = faults(renumbered(plain, 1, [](const Compute& c) { return c.chunk.value == 1 && c.op != Op::forward; }));
  REQUIRE(found.size() == 1);
  CHECK(found[0].why == "the backwards of chunk 1 are numbered 1..8 instead of 0..7");
  found =
      faults(renumbered(split, 1, [](const Compute& c) { return c.chunk.value == 6 && c.op == Op::backward_weight; }));
  REQUIRE(found.size() == 1);
  CHECK(found[0].why == "the weight gradients of chunk 6 are numbered 1..8 instead of 0..7");
  found = faults(renumbered(split, 1, [](const Compute& c) { return c.chunk.value == 6; }));
  CHECK(found.size() == 3);
  found = check_schedule(renumbered(split, 1, [](const Compute& c) { return c.chunk.value == 6; }), 1).faults;
  CHECK(found.size() == 1);
}

TEST_CASE("wrong numbers are not blamed when more is wrong", "[schedule]") {
  Schedule schedule = renumbered(one_f_one_b(Layout(4, 1, 8)), 1,
                                 [](const Compute& c) { return c.chunk.value == 3 && c.op == Op::forward; });
  schedule.ranks[1].pop_back();
  CHECK_THAT(check_schedule(schedule).faults.at(0).why, Contains("is missing"));
  // A schedule for other microbatches than the layout's is incomplete, however they are numbered.
  schedule = renumbered(one_f_one_b(Layout(4, 1, 8)), 1, [](const Compute&) { return true; });
  schedule.layout = Layout(4, 1, 16);
  CHECK_THAT(check_schedule(schedule).faults.at(0).why, Contains("no action at all"));
  // Right numbers, but in an order that cannot run.
  schedule = schedule_of(Layout(1, 1, 2), {{"0B1", "0F1"}});
  CHECK_THAT(check_schedule(schedule).faults.at(0).why, Contains("after its own backward"));
}

TEST_CASE("no more faults are reported than asked for", "[schedule]") {
  Schedule schedule = one_f_one_b(Layout(4, 1, 64));
  for (auto& actions : schedule.ranks)
    std::erase_if(actions, [](const Action& action) {
      return action.first.op == Op::backward && action.first.microbatch.value < 40;
    });
  CHECK(check_schedule(schedule).faults.size() == 20);
  CHECK(check_schedule(schedule, 3).faults.size() == 3);
  CHECK_FALSE(check_schedule(schedule, 0).ok());
}

TEST_CASE("a few actions in a huge layout are answered at once", "[schedule]") {
  const Schedule schedule = schedule_of(Layout(4096, 16, 4096), {{"0F0"}});
  CHECK_THAT(fault_with(check_schedule(schedule), "forwards").why, Contains("268435456"));
}

TEST_CASE("a legal schedule passes and the first fault of another is thrown", "[schedule]") {
  CHECK_NOTHROW(require_legal(interleaved(Layout(4, 2, 8), 4)));
  Schedule schedule = one_f_one_b(Layout(2, 1, 2));
  schedule.ranks[1].pop_back();
  CHECK_THAT(input_error_of([&] { require_legal(schedule); }),
             Contains("schedule \"1f1b\": rank 1, action 3 (1B1): is missing"));
}

}  // namespace
}  // namespace plumb

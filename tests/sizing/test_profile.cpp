// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/named.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/sizing/profile.hpp"
#include "support/catch.hpp"
#include "support/refusals.hpp"

using namespace plumb;

namespace {

const std::string good_profile = R"({"plumb_profile":1,"made_by":"x","steps":3,"cuts":[4,8],"chunks":[
  {"forward_s":0.001,"backward_s":0.002},
  {"forward_s":0.0015,"backward_input_s":0.001,"backward_weight_s":0.0005}]})";

std::string profile_with(const std::string& from, const std::string& to) {
  return test::replaced(good_profile, from, to);
}

std::string profile_refusal(const std::string& text) {
  return test::refusal_of([&] { parse_profile(text, "p.json"); });
}

SimTime us(std::int64_t count) { return SimTime(count * 1'000'000); }

}  // namespace

TEST_CASE("a profile is read, halves that were not measured shared out", "[sizing]") {
  const Profile profile = parse_profile(good_profile, "p.json");
  CHECK(profile.cuts == std::vector<int>{4, 8});
  REQUIRE(profile.times.size() == 2);
  CHECK(profile.times[0].backward_input == us(1000));
  CHECK(profile.times[0].backward_weight == us(1000));
  CHECK(profile.times[1].backward == us(1500));
}

TEST_CASE("a step's own profile predicts that step", "[sizing]") {
  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::zb_h1}) {
    const Layout layout(4, 1, 8);
    const DepthMap depth(16, 4, {4, 8, 12, 16});
    const Program program = lower(make_schedule({.kind = kind, .group = {}}, layout), depth, Policy::cached);
    const UnitBytes bytes = unit_bytes(64, 64, 2, GradientWire::fp32);
    std::vector<ActionTimes> times;
    for (int chunk = 0; chunk < 4; ++chunk)
      times.push_back(action_times(us(100 + chunk), us(90 + 7 * chunk), us(110)));
    const Link link{us(3), us(2), us(4)};
    const Timeline timeline = simulate(program, CostModel(times, link, bytes));
    Timeline slower = timeline;
    for (RankTimeline& rank : slower.ranks) {
      for (ComputeTimes& compute : rank.compute)
        compute.end += us(5);
    }
    const std::vector<Timeline> steps{slower, timeline};
    const Profile profile = parse_profile(to_json(make_profile(program, depth.cuts(), steps, "a \"test\"")), "written");
    CHECK(profile.made_by == "a \"test\"");
    CHECK(profile.steps == 2);
    CHECK(simulate(program, CostModel(profile.times, link, bytes)).step == timeline.step);
    CHECK_NOTHROW(profile_times(profile, depth.cuts(), "p"));
  }
}

TEST_CASE("malformed profiles are refused with what is wrong and where", "[sizing]") {
  CHECK(profile_refusal("") == "p.json: not JSON");
  CHECK(profile_refusal("[]") == "p.json: not a profile: no JSON object");
  CHECK(profile_refusal("{}") == "p.json: not a profile: it has no \"plumb_profile\":1");
  CHECK(profile_refusal(profile_with("\"steps\":3", "\"steps\":0")) ==
        "p.json: steps is 0, a whole number from 1 to 1073741824 is needed");
  CHECK(profile_refusal(profile_with("\"steps\"", "\"step\"")) == "p.json: unknown key 'step', did you mean 'steps'?");
  CHECK(profile_refusal(profile_with("forward_s", "forward_us")) ==
        "p.json: unknown key 'chunks[0].forward_us', did you mean 'forward_s'?");
  CHECK(profile_refusal(profile_with("0.001,", "\"1 ms\",")) ==
        "p.json: chunks[0].forward_s is \"1 ms\", seconds are needed");
  CHECK(profile_refusal(profile_with("0.001,", "-1,")) == "p.json: chunks[0].forward_s is -1, seconds are needed");
  CHECK(profile_refusal(profile_with("[4,8]", "[8,4]")) == "p.json: cuts does not ascend");
  CHECK(profile_refusal(profile_with("[4,8]", "[4]")) == "p.json: chunks must be a list as long as cuts, which has 1");
  CHECK(profile_refusal(profile_with(",\"backward_s\":0.002", "")) ==
        "p.json: chunks[0] has neither backward_s nor backward_input_s and backward_weight_s");
  CHECK(
      profile_refusal(profile_with("\"backward_weight_s\":0.0005", "\"backward_weight_s\":0.0005,\"backward_s\":7")) ==
      "p.json: chunks[1].backward_s is 7 s, its halves together are 0.0015: it must be their sum");
  CHECK(profile_refusal(profile_with(",\"backward_weight_s\":0.0005", "")) ==
        "p.json: chunks[1] has only one of backward_input_s and backward_weight_s");
  CHECK_FALSE(profile_refusal(profile_with("\"forward_s\":0.001", "\"forward_s\":0.001,\"forward_s\":0.001")).empty());
  CHECK_FALSE(profile_refusal(profile_with("0.001,", "1e300,")).empty());
  for (std::size_t cut = 0; cut < good_profile.size(); ++cut) {
    CHECK_FALSE(profile_refusal(good_profile.substr(0, cut)).empty());
    std::string changed = good_profile;
    for (const char c : {'{', '}', '"', ',', '9', '\x01'}) {
      changed[cut] = c;
      profile_refusal(changed);  // legal or refused, never anything else
    }
  }
}

TEST_CASE("a profile of other cuts is refused with both", "[sizing]") {
  const Profile profile = parse_profile(good_profile, "p.json");
  const std::vector<int> other{2, 4, 8};
  CHECK_THROWS_WITH(
      profile_times(profile, other, "p.json"),
      "p.json: measured with 2 chunks that end at 4,8, not with 3 that end at 2,4,8, nor with finer ones: "
      "give the same depth, --pp, --vp and --cuts");
}

TEST_CASE("a profile of finer chunks gives the times of all layouts whose cuts it has", "[sizing]") {
  Profile fine{.made_by = "test", .steps = 1, .cuts = {2, 4, 6, 8}, .times = {}};
  for (const int n : {1, 2, 3, 4})
    fine.times.push_back(action_times(us(n), us(10 * n), us(100 * n)));
  const auto forward_of = [&](const std::vector<int>& cuts) {
    std::vector<std::int64_t> all;
    for (const ActionTimes& times : profile_times(fine, cuts, "p")) {
      CHECK(times.backward_input == 10 * times.forward);
      CHECK(times.backward_weight == 100 * times.forward);
      CHECK(times.backward == 110 * times.forward);
      all.push_back(times.forward.count() / us(1).count());
    }
    return all;
  };
  CHECK(forward_of({2, 4, 6, 8}) == std::vector<std::int64_t>{1, 2, 3, 4});
  CHECK(forward_of({4, 8}) == std::vector<std::int64_t>{3, 7});
  CHECK(forward_of({8}) == std::vector<std::int64_t>{10});
  CHECK(forward_of({0, 2, 2, 8}) == std::vector<std::int64_t>{0, 1, 0, 9});
  for (const std::vector<int>& cuts : {std::vector<int>{3, 8}, {2, 7}, {4}, {2, 8, 10}, {0}, {}}) {
    CAPTURE(cuts.size());
    CHECK_THROWS_WITH(profile_times(fine, cuts, "p"), Catch::Contains("nor with finer ones"));
  }
}

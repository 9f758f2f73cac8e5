// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "cache/support/faults.hpp"
#include "cache/support/programs.hpp"
#include "plumb/cache/encode.hpp"
#include "plumb/schedule/error.hpp"
#include "support/catch.hpp"
#include "support/refusals.hpp"

namespace plumb {
namespace {

using test::contains;
using test::Dice;
using namespace std::string_view_literals;

constexpr test::Limits small = {.pp = 4, .vp = 3, .sublayers = 20, .microbatches = 5};

// Empty if the text was accepted.
std::string refusal(std::string_view json) {
  return test::refusal_of([&] { program_from_json(json); });
}

std::string refusal_after(std::string_view what, std::string_view by) {
  return refusal(test::replaced(program_to_json(test::small_program(Policy::cached)), what, by));
}

}  // namespace

TEST_CASE("a program read back from its JSON has the same canonical bytes", "[cache][encode]") {
  Dice dice(11);
  for (int trial = 0; trial < 60; ++trial) {
    const Program program = test::random_program(dice, small);
    INFO(test::describe(program));
    const std::string json = program_to_json(program);
    const Program back = program_from_json(json);
    CHECK(canonical_bytes(back) == canonical_bytes(program));
    CHECK(digest(back) == digest(program));
    CHECK(program_to_json(back) == json);
    CHECK(fingerprint(back) == fingerprint(program));
  }
}

TEST_CASE("the digest is the XXH3 of the canonical bytes and differs between different programs", "[cache][encode]") {
  std::set<std::string> digests;
  for (const Policy policy : test::block_policies) {
    for (const bool forward_only : {false, true}) {
      digests.insert(to_string(digest(test::small_program(policy, forward_only))));
    }
  }
  CHECK(digests.size() == 8);
  for (const std::string& text : digests) {
    CHECK(text.size() == 32);
  }
}

TEST_CASE("every changed field changes the bytes", "[cache][encode]") {
  const Program program = test::small_program(Policy::cached);
  const auto differs = [&](auto&& change) {
    Program changed = program;
    change(changed);
    return canonical_bytes(changed) != canonical_bytes(program);
  };
  CHECK_FALSE(differs([](Program&) {}));
  CHECK(differs([](Program& p) { p.layout = Layout(4, 2, 9); }));
  CHECK(differs([](Program& p) { p.layout = Layout(4, 2, 8, Placement::vee); }));
  CHECK(differs([](Program& p) { p.depth = DepthMap(32, 5, DepthMap::even_cuts(32, 32, 8)); }));
  CHECK(differs([](Program& p) { p.schedule_name += "x"; }));
  CHECK(differs([](Program& p) { p.forward_only = true; }));
  CHECK(differs([](Program& p) { p.post_ahead = 2; }));
  CHECK(differs([](Program& p) { p.routing.policy = Policy::relay; }));
  CHECK(differs([](Program& p) { p.routing.transfers.front().holdings.pop_back(); }));
  CHECK(differs([](Program& p) { p.routing.holdings.front().children.clear(); }));
  CHECK(differs([](Program& p) { p.routing.root.front().value++; }));
  CHECK(differs([](Program& p) { p.messages.front().microbatch.value++; }));
  CHECK(differs([](Program& p) { p.ranks[2].num_gradient_slots++; }));
  CHECK(differs([](Program& p) { p.ranks[2].compute.front().compute.op = Op::backward; }));
  CHECK(differs([](Program& p) { p.ranks[2].compute.front().overlaps_next = true; }));
  CHECK(differs([](Program& p) {
    p.ranks[2].comm.front().lane = MessageLane{p.ranks[2].comm.front().lane == MessageLane::urgent};
  }));
  CHECK(differs([](Program& p) { p.ranks[2].comm.front().peer.value = 0; }));
  CHECK(differs([](Program& p) { p.ranks[2].waits.front().step++; }));
  CHECK(differs([](Program& p) { p.ranks[2].operands.front().slot++; }));
  CHECK(differs([](Program& p) { p.ranks[2].operands.front().first_touch ^= true; }));
  CHECK(differs([](Program& p) { p.ranks[2].segments.front().index++; }));
  CHECK(differs([](Program& p) { p.ranks[2].releases.front().slot.index++; }));
  CHECK(differs([](Program& p) { std::swap(p.ranks[2].order[0], p.ranks[2].order[1]); }));
}

TEST_CASE("how the pools lie in memory does not change the bytes", "[cache][encode]") {
  const Program program = test::small_program(Policy::relay);
  Program moved = program;
  for (RankProgram& rank : moved.ranks) {
    const auto shift = static_cast<std::uint32_t>(rank.waits.size());
    rank.waits.insert(rank.waits.end(), rank.waits.begin(), rank.waits.end());
    for (ComputeStep& step : rank.compute) {
      step.waits = {step.waits.begin + shift, step.waits.end + shift};
    }
  }
  CHECK(canonical_bytes(moved) == canonical_bytes(program));
}

TEST_CASE("the first differing field of two fingerprints is named with both values", "[cache][encode]") {
  const Program cached = test::small_program(Policy::cached);
  const Fingerprint mine = fingerprint(cached);
  CHECK_FALSE(first_difference(mine, mine));
  const auto against = first_difference(mine, fingerprint(test::small_program(Policy::relay)));
  REQUIRE(against);
  CHECK(against->field == "cache");
  CHECK(against->mine == "cached");
  CHECK(against->theirs == "relay");

  Program one_step_differs = cached;
  one_step_differs.ranks[3].waits.front().step++;
  CHECK(first_difference(mine, fingerprint(one_step_differs))->field == "program of rank 3");

  Program other_depth = cached;
  other_depth.layout = Layout(4, 2, 16);
  CHECK(first_difference(mine, fingerprint(other_depth))->theirs == "16");

  Fingerprint longer = mine;
  longer.emplace_back("dtype", "bf16");
  CHECK(first_difference(mine, longer)->field == "dtype");
  CHECK(first_difference(mine, longer)->mine == "(missing)");
}

TEST_CASE("a schedule name with quotes, line ends and foreign letters survives", "[cache][encode]") {
  Program program = test::small_program(Policy::cached);
  program.schedule_name = "plans/\"mein\"\n\\Plan \xc3\xbc.csv";
  CHECK(program_from_json(program_to_json(program)).schedule_name == program.schedule_name);
}

TEST_CASE("reading a program names the place of what is wrong", "[cache][encode]") {
  CHECK(contains(refusal(""), "not JSON"));
  CHECK(contains(refusal("{\"format\":"), "not JSON"));
  CHECK(contains(refusal("[]"), "$ must be an object, found array"));
  CHECK(contains(refusal("{}"), "$ lacks \"format\""));
  CHECK(contains(refusal_after("\"version\":1", "\"version\":2"), "$.version is 2, it must be 1..1"));
  CHECK(contains(refusal_after("\"pp\":4", "\"pp\":0"), "$.layout.pp is 0"));
  CHECK(contains(refusal_after("\"pp\":4", "\"pp\":\"4\""), "$.layout.pp must be an integer, found string"));
  CHECK(contains(refusal_after("\"pp\":4", "\"pp\":4.0"), "$.layout.pp must be an integer"));
  CHECK(contains(refusal_after("\"pp\":4,", ""), "$.layout lacks \"pp\""));
  CHECK(contains(refusal_after("\"pp\":4", "\"pp\":4,\"tp\":1"), "$.layout has an unknown key \"tp\""));
  CHECK(contains(refusal_after("\"loop\"", "\"ring\""), "$.layout.placement is \"ring\", it must be one of loop, vee"));
  CHECK(contains(refusal_after("\"cuts\":[4,", "\"cuts\":["), "$.depth.cuts has 7 entries, it must have 8"));
  CHECK(contains(refusal_after("\"cuts\":[4,", "\"cuts\":[31,"), "$.depth is refused"));
  CHECK(contains(refusal_after("\"cache\":\"cached\"", "\"cache\":\"standard\""), "$.routing.cache"));
  CHECK(contains(refusal_after("\"run\":\"0F0\"", "\"run\":\"0F00\""), "$.ranks[0].steps[0].run"));
  CHECK(contains(refusal_after("\"run\":\"0F0\"", "\"run\":\"8F0\""), "beyond 8 chunks"));
  CHECK(contains(refusal_after("\"do\":\"send\"", "\"do\":\"sent\""), "].do is \"sent\""));
  CHECK(contains(refusal_after("\"waits\":[\"c0\"]", "\"waits\":[\"c99999\"]"),
                 "].waits[0] must be c and a number below 32, or m"));
  CHECK(contains(refusal_after("\"waits\":[\"c0\"]", "\"waits\":[\"c00\"]"), "].waits[0] must be c"));
  CHECK(
      contains(refusal_after("\"forward_only\":false", "\"forward_only\":0"), "$.forward_only must be true or false"));
}

TEST_CASE("a program with a key twice, brackets by the thousand or a name that cannot be is refused",
          "[cache][encode]") {
  CHECK(contains(refusal_after("\"pp\":4", "\"pp\":4,\"pp\":4"), "key \"pp\" stands a second time"));
  CHECK(contains(refusal(std::string(100'000, '[')), "nested deeper than 64"));
  CHECK(contains(refusal_after("\"schedule\":\"interleaved\"", "\"schedule\":\"\""), "$.schedule is empty"));
  CHECK(contains(refusal_after("\"schedule\":\"interleaved\"", "\"schedule\":\"zb-v\""), "$.schedule is refused"));
  CHECK(contains(refusal_after("\"schedule\":\"interleaved\"", "\"schedule\":\"1f1b\""), "$.schedule is refused"));
  CHECK(refusal_after("\"schedule\":\"interleaved\"", "\"schedule\":\"zb-h1\"").empty());
  CHECK(refusal_after("\"schedule\":\"interleaved\"", "\"schedule\":\"auto\"").empty());
}

TEST_CASE("absurd sizes are refused before anything is allocated for them", "[cache][encode]") {
  CHECK(contains(refusal_after("\"pp\":4", "\"pp\":2147483647"), "$.layout is refused"));
  CHECK(contains(refusal_after("\"pp\":4", "\"pp\":18446744073709551615"), "$.layout.pp is 18446744073709551615"));
  CHECK(contains(refusal_after("\"microbatches\":8", "\"microbatches\":1048576000"), "$.layout is refused"));
  CHECK(contains(refusal_after("\"sublayers\":32", "\"sublayers\":2000000000"), "$.depth is refused"));
  std::string json = program_to_json(test::small_program(Policy::cached));
  const std::size_t at = json.find("\"num_value_slots\":") + std::string_view("\"num_value_slots\":").size();
  json.replace(at, json.find(',', at) - at, "2147483647");
  CHECK(contains(refusal(json), "$.ranks[0].num_value_slots is 2147483647, but the steps name slots"));
}

TEST_CASE("a damaged text is refused or read, never worse", "[cache][encode]") {
  Dice dice(12);
  const Program program = test::random_program(dice, {.pp = 2, .vp = 2, .sublayers = 6, .microbatches = 2});
  const std::string json = program_to_json(program);
  constexpr std::string_view tempting = "0123456789-+.eE\"'{}[],:cmvg\\ \n\x00\x7f\xff"sv;
  int accepted = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::string damaged = json;
    const auto at = static_cast<std::size_t>(dice.roll(0, static_cast<int>(json.size()) - 1));
    switch (dice.roll(0, 4)) {
      case 0:
      case 1: {  // one digit for another: most of what gets past the parser
        const std::size_t digit = damaged.find_first_of("0123456789", at);
        if (digit != std::string::npos) damaged[digit] = static_cast<char>('0' + dice.roll(0, 9));
        break;
      }
      case 2:
        damaged[at] = tempting[static_cast<std::size_t>(dice.roll(0, static_cast<int>(tempting.size()) - 1))];
        break;
      case 3:
        damaged.erase(at, static_cast<std::size_t>(dice.roll(1, 20)));
        break;
      default:
        damaged.insert(at, json.substr(static_cast<std::size_t>(dice.roll(0, static_cast<int>(json.size()) - 1)), 8));
    }
    const std::string why = refusal(damaged);
    if (why.empty()) {
      ++accepted;
    } else {
      CHECK(contains(why, "program JSON: "));
      CHECK_FALSE(contains(why, "\n"));
    }
  }
  CHECK(accepted > 50);
  CHECK(accepted < 3000);
}

TEST_CASE("a number that no number holds is bad input", "[cache]") {
  std::string json = program_to_json(test::small_program(Policy::cached));
  const std::string_view field = "\"microbatches\":";
  const std::size_t place = json.find(field);
  REQUIRE(place != std::string::npos);
  json.insert(place + field.size(), "1e999,\"unused\":");
  CHECK_THROWS_AS(program_from_json(json), InputError);
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "cache/support/programs.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/named.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/simulator/svg_timeline.hpp"
#include "simulator/support/models.hpp"
#include "simulator/support/xml.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

Program plain_program(ScheduleKind kind, int pp, int vp, int microbatches) {
  const Layout layout(pp, vp, microbatches, placement_of(kind));
  const int chunks = layout.num_chunks();
  const DepthMap depth(chunks, chunks, DepthMap::even_cuts(chunks, chunks, chunks), Residual::standard);
  return lower(make_schedule({.kind = kind}, layout), depth, Policy::standard, {.costs = free_links().plan_costs()});
}

int stages_of(ScheduleKind kind) {
  if (kind == ScheduleKind::one_f_one_b || kind == ScheduleKind::gpipe) return 1;
  return 2;
}

XmlDocument drawn(const std::string& svg) {
  XmlDocument document = parse_xml(svg);
  CAPTURE(document.fault);
  REQUIRE(document.fault.empty());
  REQUIRE(document.elements.at(0).name == "svg");
  return document;
}

XmlDocument drawn(const Program& program, const CostModel& costs, const SvgOptions& options = {}) {
  return drawn(svg_timeline(program, simulate(program, costs), options));
}

std::string all_text(const XmlDocument& document) {
  std::string text;
  for (const XmlElement& element : document.elements)
    text += element.text + "\n";
  return text;
}

int count_class(const XmlDocument& document, const std::string& name) {
  int count = 0;
  for (const XmlElement& element : document.elements) {
    const auto found = element.attributes.find("class");
    count += found != element.attributes.end() && found->second == name ? 1 : 0;
  }
  return count;
}

// Nothing leaves the page, and a number has a cell around it that is wide enough.
void require_inside(const XmlDocument& document) {
  const double width = number(document.elements.at(0), "width");
  const double height = number(document.elements.at(0), "height");
  std::vector<const XmlElement*> cells;
  for (const XmlElement& element : document.elements) {
    if (element.name != "rect" || !element.attributes.contains("x")) continue;
    REQUIRE(number(element, "x") >= 0);
    REQUIRE(number(element, "y") >= 0);
    REQUIRE(number(element, "x") + number(element, "width") <= width + 0.02);
    REQUIRE(number(element, "y") + number(element, "height") <= height + 0.02);
    cells.push_back(&element);
  }
  for (const XmlElement& element : document.elements) {
    if (element.name != "text") continue;
    const std::string& kind = element.attributes.at("class");
    if (kind != "n" && kind != "k") continue;
    const double half = 0.5 * 0.5 * (kind == "n" ? 8 : 8) * static_cast<double>(element.text.size());
    const double x = number(element, "x");
    const double y = number(element, "y");
    bool found = false;
    for (const XmlElement* cell : cells) {
      const std::string& cell_class = cell->attributes.at("class");
      found = found || (std::string("FBIW").find(cell_class[0]) != std::string::npos &&
                        number(*cell, "x") <= x - half && x + half <= number(*cell, "x") + number(*cell, "width") &&
                        number(*cell, "y") <= y && y <= number(*cell, "y") + number(*cell, "height"));
    }
    REQUIRE(found);
  }
}

// "rank 0: 0F3" or "rank 0: 0F3 and 7B1 together" -> what was drawn.
std::set<std::string> drawn_actions(const XmlDocument& document) {
  std::set<std::string> actions;
  for (const XmlElement& element : document.elements) {
    if (element.name != "title" || !element.text.starts_with("rank ")) continue;
    const std::string what = element.text.substr(element.text.find(": ") + 2);
    const std::string names = what.substr(0, what.find(','));
    const std::size_t both = names.find(" and ");
    actions.insert(names.substr(0, both));
    if (both != std::string::npos) actions.insert(names.substr(both + 5, names.find(" together") - both - 5));
  }
  return actions;
}

}  // namespace

TEST_CASE("every schedule is drawn as well-formed XML with each of its computations", "[simulator]") {
  for (const ScheduleKind kind : all_schedule_kinds()) {
    for (const int pp : {1, 2, 4}) {
      for (const CostModel& costs : {free_links(), latency_only(us(130)), unit_time(us(90))}) {
        const Program program = plain_program(kind, pp, stages_of(kind), 2 * pp);
        CAPTURE(describe(program));
        const XmlDocument document = drawn(program, costs);
        std::set<std::string> expected;
        for (const RankProgram& rank : program.ranks) {
          for (const ComputeStep& step : rank.compute)
            expected.insert(to_string(step.compute));
        }
        REQUIRE(drawn_actions(document) == expected);
        require_inside(document);
      }
    }
  }
}

TEST_CASE("any program under any costs is drawn inside its page and the same each time", "[simulator]") {
  Dice dice(5);
  for (int round = 0; round < 60; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    const CostModel costs = random_model(dice, program.layout.num_chunks());
    const Timeline timeline = simulate(program, costs);
    const std::string svg = svg_timeline(program, timeline);
    require_inside(drawn(svg));
    REQUIRE(svg == svg_timeline(program, timeline));
    REQUIRE(svg.size() < 2'000'000);
  }
}

TEST_CASE("an overlapped pair is one cell of two halves", "[simulator]") {
  const XmlDocument document = drawn(plain_program(ScheduleKind::dualpipe_v, 2, 2, 4), free_links());
  int together = 0;
  for (const XmlElement& element : document.elements)
    together += element.name == "title" && element.text.find("together") != std::string::npos ? 1 : 0;
  CHECK(together > 0);
  CHECK(together <= 2 * 7);  // two halves of seven pairs, but of those that wait between their halves
  CHECK(all_text(document).find("overlapped pair") != std::string::npos);
}

TEST_CASE("the halves of a pair that waits in between stand alone, each as long as it runs", "[simulator]") {
  const Program program = plain_program(ScheduleKind::dualpipe_v, 4, 2, 8);
  const CostModel costs = free_links();
  const Timeline timeline = simulate(program, costs);
  const XmlDocument document = drawn(svg_timeline(program, timeline));
  int split = 0;
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const std::vector<ComputeStep>& steps = program.ranks[rank].compute;
    const std::vector<ComputeTimes>& times = timeline.ranks[rank].compute;
    for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
      if (!steps[i].overlaps_next || times[i + 1].start <= times[i].end) continue;
      ++split;
      for (const std::size_t half : {i, i + 1}) {
        const std::string name = "rank " + std::to_string(rank) + ": " + to_string(steps[half].compute) + ",";
        const auto found = std::find_if(
            document.elements.begin(), document.elements.end(),
            [&](const XmlElement& element) { return element.name == "title" && element.text.starts_with(name); });
        REQUIRE(found != document.elements.end());
      }
    }
  }
  CHECK(split > 0);
}

TEST_CASE("waiting for messages is hatched, and only where messages take time", "[simulator]") {
  const Program program = plain_program(ScheduleKind::one_f_one_b, 4, 1, 4);
  const XmlDocument free = drawn(program, free_links());
  const XmlDocument slow = drawn(program, latency_only(us(300)));
  CHECK(count_class(free, "w") == 0);
  CHECK(count_class(slow, "w") > 8);
  CHECK(count_class(free, "m") == 0);
  CHECK(count_class(slow, "m") > 0);  // 24 messages: few enough for arrows
  CHECK(count_class(drawn(program, latency_only(us(300)), {.title = {}, .subtitle = {}, .messages = false}), "m") == 0);
  CHECK(count_class(drawn(plain_program(ScheduleKind::one_f_one_b, 8, 1, 16), latency_only(us(300))), "m") == 0);
}

TEST_CASE("titles are escaped whatever bytes they have", "[simulator]") {
  const Program program = plain_program(ScheduleKind::gpipe, 2, 1, 2);
  for (const std::string& title :
       {std::string("a<b>&\"c'"), std::string("\x01\x1f\x7f\xff\xc0\x80\xed\xa0\x80 x"),
        std::string("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x80"), std::string("]]>--<!--")}) {
    const XmlDocument document = drawn(program, free_links(), {.title = title, .subtitle = title, .messages = true});
    CHECK(document.elements.size() > 10);
  }
  const std::string kept = all_text(drawn(program, free_links(), {.title = "a<b>&\"c' \xe2\x82\xac", .subtitle = {}}));
  CHECK(kept.find("a<b>&\"c' \xe2\x82\xac") != std::string::npos);
}

TEST_CASE("a step of 8 x 64 actions shows every number, a longer one leaves equal periods out", "[simulator]") {
  const XmlDocument readable = drawn(plain_program(ScheduleKind::one_f_one_b, 8, 1, 32), free_links());
  CHECK(count_class(readable, "n") >= 8 * 64 - 8);  // on each rank one may be cut in two where the page wraps
  CHECK(count_class(readable, "n") <= 8 * 64);
  CHECK(all_text(readable).find("left out") == std::string::npos);

  const Program program = plain_program(ScheduleKind::interleaved, 8, 4, 1024);
  const std::string svg = svg_timeline(program, simulate(program, free_links()));
  CHECK(svg.size() < 1'000'000);
  const XmlDocument folded = drawn(svg);
  CHECK(all_text(folded).find("equal periods") != std::string::npos);
  require_inside(folded);
}

TEST_CASE("drawings are bounded for any size of step", "[simulator]") {
  const auto size = [](const Program& program, const CostModel& costs) {
    const std::string svg = svg_timeline(program, simulate(program, costs));
    drawn(svg);
    return svg.size();
  };
  CHECK(size(plain_program(ScheduleKind::gpipe, 2, 1, 5000), free_links()) < 1'000'000);
  CHECK(size(plain_program(ScheduleKind::looped_bfs, 16, 4, 200), free_links()) < 2'000'000);
  CHECK(size(plain_program(ScheduleKind::one_f_one_b, 64, 1, 128), free_links()) < 2'000'000);
  const Program many = plain_program(ScheduleKind::one_f_one_b, 200, 1, 200);
  const std::string svg = svg_timeline(many, simulate(many, free_links()));
  CHECK(svg.size() < 2'000'000);
  CHECK(all_text(drawn(svg)).find("136 more ranks") != std::string::npos);
  // Random times repeat nowhere: the middle is left out.
  Dice dice(3);
  const Program uneven = plain_program(ScheduleKind::zb_v, 6, 2, 900);
  CHECK(size(uneven, random_model(dice, 12)) < 2'000'000);
}

TEST_CASE("a step that takes no time is said to have nothing to draw", "[simulator]") {
  const CostModel nothing(action_times(us(0), us(0), us(0)), Link{}, storage_bytes);
  const XmlDocument document = drawn(plain_program(ScheduleKind::gpipe, 2, 1, 2), nothing);
  CHECK(all_text(document).find("nothing") != std::string::npos);
}

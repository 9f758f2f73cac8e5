// SPDX-License-Identifier: Apache-2.0
// The page as text; what it does in a browser is tested in tests/html.
#include <algorithm>
#include <numeric>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/support/programs.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/html_page.hpp"
#include "plumb/simulator/link_load.hpp"
#include "plumb/simulator/network.hpp"
#include "plumb/simulator/simulate.hpp"
#include "simulator/support/html_reader.hpp"
#include "simulator/support/models.hpp"
#include "simulator/support/networks.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

struct Step {
  Program program;
  CostModel costs;
  Timeline timeline;
  SimReport report;
  HtmlPage page;

  Step(Program its_program, CostModel its_costs)
      : program(std::move(its_program)),
        costs(std::move(its_costs)),
        timeline(simulate(program, costs)),
        report(make_report(program, costs, timeline)),
        page(make_html_page(program, costs, timeline, report)) {}
  Step(Program its_program, CostModel its_costs, const NetworkModel& network)
      : program(std::move(its_program)),
        costs(std::move(its_costs)),
        timeline(simulate_network(program, costs, network)),
        report(make_report(program, costs, timeline, &network)),
        page(make_html_page(program, costs, timeline, report, &network)) {}

  std::string html(const HtmlLimits& limits = {}) const {
    std::ostringstream out;
    write_html(out, program, costs, timeline, report, page, limits);
    return out.str();
  }
  std::vector<std::vector<PageAction>> actions(const std::string& html) const {
    return actions_of(html, program.layout.pp(), program.layout.vp());
  }
};

nlohmann::json facts_of(const std::string& html) { return nlohmann::json::parse(script_of(html, "facts")); }

bool same_action(const Step& step, RankId rank, std::size_t index, const PageAction& shown) {
  const ComputeTimes& times = step.timeline.ranks[rank.index()].compute[index];
  const Compute& compute = step.program.ranks[rank.index()].compute[index].compute;
  return shown.start == times.start.count() && shown.end == times.end.count() &&
         shown.exposed == times.exposed.count() && shown.op == compute.op &&
         shown.stage == step.program.layout.virtual_stage_of(compute.chunk).value &&
         shown.microbatch == compute.microbatch.value;
}

bool same_message(const Step& step, std::size_t index, const PageMessage& shown) {
  const MessageTimes& times = step.timeline.messages[index];
  const Message& message = step.program.messages[index];
  return shown.transfer == message.transfer.value && shown.microbatch == message.microbatch.value &&
         shown.backward == (message.direction == Direction::backward) && shown.start == times.start.count() &&
         shown.sent == times.sent.count() && shown.arrived == times.arrived.count() &&
         shown.ready == std::min(times.send_ready, times.start).count() &&
         shown.posted == std::min(times.posted, times.start).count();
}

// An action that was idle before names a message that arrived by then and no other arrived later.
void require_awaited(const Step& step, RankId rank, const PageAction& action) {
  if (action.transfer < 0) return;
  bool found = false;
  for (std::size_t m = 0; m < step.program.messages.size(); ++m) {
    const Message& message = step.program.messages[m];
    if (message.transfer.value != action.transfer || message.microbatch.value != action.transfer_microbatch ||
        (message.direction == Direction::backward) != action.backward)
      continue;
    found = step.program.receiver(MessageId(m)) == rank || step.program.sender(MessageId(m)) == rank;
  }
  REQUIRE(found);
}

void require_whole(const Step& step, const std::string& html) {
  const auto ranks = step.actions(html);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    REQUIRE(ranks[r].size() == step.timeline.ranks[r].compute.size());
    for (std::size_t i = 0; i < ranks[r].size(); ++i) {
      REQUIRE(same_action(step, RankId(r), i, ranks[r][i]));
      require_awaited(step, RankId(r), ranks[r][i]);
    }
  }
  const auto messages = messages_of(html, step.program.routing.transfers.size());
  REQUIRE(messages.size() == step.timeline.messages.size());
  for (std::size_t m = 0; m < messages.size(); ++m)
    REQUIRE(same_message(step, m, messages[m]));
  const std::vector<PagePiece> path = path_of(html);
  REQUIRE(path.size() == step.page.path.size());
  for (std::size_t i = 0; i < path.size(); ++i) {
    const PathPiece& piece = step.page.path[i];
    REQUIRE(path[i].kind == static_cast<int>(piece.kind));
    REQUIRE(path[i].rank == piece.rank.value);
    REQUIRE(path[i].to == piece.to.value);
    REQUIRE(path[i].begin == piece.begin.count());
    REQUIRE(path[i].end == piece.end.count());
  }
  REQUIRE(path.back().end == step.timeline.step.count());
}

void require_self_contained(const std::string& html) {
  const XmlDocument document = markup_of(html);
  CAPTURE(document.fault);
  REQUIRE(document.fault.empty());
  int policies = 0;
  for (const XmlElement& element : document.elements) {
    for (const auto& [key, value] : element.attributes) {
      REQUIRE_FALSE(key.starts_with("on"));
      REQUIRE(key != "style");
      if (key == "src" || key == "href") REQUIRE(value.starts_with("data:"));
      if (key == "http-equiv") ++policies;
      if (key == "content" && value.find("default-src") != std::string::npos) {
        REQUIRE(value.starts_with("default-src 'none'; script-src 'sha256-"));
        REQUIRE(value.find("unsafe") == std::string::npos);
      }
    }
  }
  REQUIRE(policies == 1);
  for (const std::string_view outside : {"http:", "https:", "@import", "url(", "//cdn", "{{"})
    REQUIRE(html.find(outside) == std::string::npos);
}

int count_of(const XmlDocument& document, std::string_view name) {
  return static_cast<int>(std::count_if(document.elements.begin(), document.elements.end(),
                                        [&](const XmlElement& element) { return element.name == name; }));
}

}  // namespace

TEST_CASE("a page holds every action and message of any step to the picosecond", "[simulator]") {
  Dice dice(83);
  for (int round = 0; round < 12; ++round) {
    Program program = random_program(dice, {.pp = 5, .vp = 3, .sublayers = 24, .microbatches = 5});
    CAPTURE(describe(program));
    const int num_chunks = program.layout.num_chunks();
    const int num_ranks = program.layout.pp();
    if (round % 3 == 0) {
      const Step step(std::move(program), random_model(dice, num_chunks), random_network(dice, num_ranks));
      require_whole(step, step.html());
    } else {
      const Step step(std::move(program), round % 3 == 1 ? latency_only(us(300)) : random_model(dice, num_chunks));
      require_whole(step, step.html());
    }
  }
}

TEST_CASE("a page asks nothing of anybody and is well-formed", "[simulator]") {
  for (const Policy policy : {Policy::cached, Policy::naive}) {
    const Step step(small_program(policy), unit_time(us(50)));
    const std::string html = step.html();
    require_self_contained(html);
    CHECK(html.starts_with("<!DOCTYPE html>\n"));
    CHECK(html.size() < 400'000);
    CHECK(step.html() == html);
  }
}

TEST_CASE("what a page shows is what the report says", "[simulator]") {
  const Step step(small_program(Policy::cached), unit_time(us(50)));
  const std::string html = step.html();
  const nlohmann::json facts = facts_of(html);
  CHECK(facts["step"] == step.report.step.count());
  CHECK(facts["pp"] == 4);
  CHECK(facts["actions"]["kept"] == facts["actions"]["all"]);

  std::int64_t bytes = 0;
  for (const char* direction : {"forward", "backward"}) {
    for (const auto& one : facts["hops"][direction])
      bytes += one.get<std::int64_t>();
  }
  CHECK(bytes == step.report.bytes_per_step);
  std::int64_t linked = 0;
  for (const auto& one : facts["links"]["bytes"])
    linked += one.get<std::int64_t>();
  CHECK(linked == step.report.bytes_per_step);
  const LinkLoads loads = link_loads(step.program, step.costs, step.timeline);
  REQUIRE(facts["loads"].size() == loads.links.size());
  CHECK(facts["loads"][0]["busy"] == loads.links[0].busy.count());

  const std::size_t num_parts = facts["split"]["parts"].size();
  const auto times = facts["split"]["times"].get<std::vector<std::int64_t>>();
  REQUIRE(times.size() == 4 * num_parts);
  for (std::size_t r = 0; r < 4; ++r) {
    const auto first = times.begin() + static_cast<std::ptrdiff_t>(r * num_parts);
    CHECK(std::accumulate(first, first + static_cast<std::ptrdiff_t>(num_parts), std::int64_t{0}) ==
          step.report.step.count());
  }
  const XmlDocument document = markup_of(html);
  std::string text;
  for (const XmlElement& element : document.elements)
    text += element.text + "\n";
  for (const HtmlFact& figure : step.page.figures)
    CHECK(text.find(figure.value) != std::string::npos);
  CHECK(count_of(document, "table") == 4);
  for (const XmlElement& element : document.elements) {
    if (element.name == "th") CHECK(element.attributes.contains("scope"));
    if (element.name == "canvas")
      CHECK((element.attributes.contains("role") || element.attributes.contains("aria-hidden")));
  }
}

TEST_CASE("a page's longest chain is a table of what adds up to the step, and no more than that where it is long",
          "[simulator]") {
  const Step step(small_program(Policy::cached), unit_time(us(50)));
  const std::string html = step.html();
  const std::vector<PathShare> shares = path_shares(step.page.path);
  std::size_t at = 0;
  for (const PathShare& share : shares) {
    at = html.find(fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td>{:.3f}</td>", name_of(share), share.count,
                               to_us(share.time) / 1000),
                   at);
    CAPTURE(name_of(share));
    REQUIRE(at != std::string::npos);
  }
  const std::string table_only = step.html({.path_pieces = step.page.path.size() - 1});
  CHECK(path_of(table_only).empty());
  CHECK(table_only.find(name_of(shares[0])) != std::string::npos);
  CHECK(step.html({.table_rows = 2}).find("The longest 2 of ") != std::string::npos);
}

TEST_CASE("a page's memory is the curve of every class, and its peak survives thinning", "[simulator]") {
  const Step step(small_program(Policy::direct), unit_time(us(50)));
  const std::size_t num_classes = step.page.memory.classes.size();
  REQUIRE(num_classes >= 4);
  const auto whole = memory_of(step.html(), 4, num_classes);
  const auto thin = memory_of(step.html({.memory_points = 4}), 4, num_classes);
  const auto total = [](const PageMemoryPoint& point) {
    return std::accumulate(point.bytes.begin(), point.bytes.end(), std::int64_t{0});
  };
  for (std::size_t r = 0; r < 4; ++r) {
    const std::vector<MemoryBytesPoint> curve =
        memory_by_class(step.program, step.timeline, RankId(r), {step.costs.bytes(), {}, {}});
    const std::vector<MemoryPoint> counts = memory_curve(step.program, step.timeline, RankId(r));
    std::size_t next = 0;
    std::int64_t most_chunks = 0;
    for (const PageMemoryPoint& point : whole[r]) {
      while (next + 1 < curve.size() && curve[next + 1].at.count() <= point.at)
        ++next;
      REQUIRE(total(point) == curve[next].bytes.total());
      most_chunks = std::max(most_chunks, point.chunks);
    }
    CHECK(most_chunks == step.report.ranks[r].memory.each.activation_chunks);
    CHECK(whole[r].size() >= std::max(curve.size(), counts.size()));
    const auto less = [&](const PageMemoryPoint& a, const PageMemoryPoint& b) { return total(a) < total(b); };
    const auto peak = std::max_element(whole[r].begin(), whole[r].end(), less);
    const auto thin_peak = std::max_element(thin[r].begin(), thin[r].end(), less);
    CHECK(total(*peak) == class_peak(curve).bytes());
    CHECK(total(*thin_peak) == total(*peak));
    CHECK(thin_peak->at == peak->at);
    CHECK(thin[r].size() <= 64);
  }
  CHECK(step.html({.memory_points = 4}).find("thinned") != std::string::npos);
}

TEST_CASE("a step too long for a page loses its middle, and the page says so", "[simulator]") {
  const Step step(small_program(Policy::cached), unit_time(us(50)));
  const std::string html = step.html({.actions = 60, .messages = 100, .links = 3, .table_rows = 2});
  require_self_contained(html);
  const nlohmann::json facts = facts_of(html);
  CHECK(facts["actions"]["all"] == 128);
  CHECK(html.find("leaves out those") != std::string::npos);
  CHECK(facts["links"]["from"].size() == 3);
  CHECK(html.find("The first 2 of 4 ranks") != std::string::npos);
  const auto from = facts["actions"]["left_out_from"].get<std::int64_t>();
  const auto to = facts["actions"]["left_out_to"].get<std::int64_t>();
  CHECK(from < to);
  const auto ranks = step.actions(html);
  std::size_t kept = 0;
  for (std::size_t r = 0; r < 4; ++r) {
    std::size_t next = 0;
    const std::vector<ComputeTimes>& all = step.timeline.ranks[r].compute;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].start.count() >= from && all[i].end.count() <= to) continue;  // gone
      REQUIRE(next < ranks[r].size());
      REQUIRE(ranks[r][next].start == all[i].start.count());
      REQUIRE(ranks[r][next++].end == all[i].end.count());
    }
    CHECK(next == ranks[r].size());
    kept += next;
  }
  CHECK(facts["actions"]["kept"] == kept);
  CHECK(kept < 90);
  const auto messages = messages_of(html, step.program.routing.transfers.size());
  CHECK(facts["messages"]["kept"] == messages.size());
  CHECK(messages.size() < step.timeline.messages.size());

  // A limit in bytes holds, however few events that leaves.
  const std::string small = step.html({.action_bytes = 300, .message_bytes = 700});
  CHECK(script_of(small, "actions").size() <= 400);
  CHECK(script_of(small, "messages").size() <= 936);
  CHECK_NOTHROW(step.actions(small));
}

TEST_CASE("a name is text on a page, whatever it says", "[simulator]") {
  const std::string hostile =
      "</script><script>alert(1)</script><img src=\"x\" onerror=\"alert(2)\"> &amp; ' {{facts}} \x01\n";
  Step step(small_program(Policy::relay), unit_time(us(50)));
  const int scripts = count_of(markup_of(step.html()), "script");
  const int images = count_of(markup_of(step.html()), "img");
  step.program.schedule_name = hostile;
  HtmlPage& page = step.page;
  page.title = page.subtitle = hostile + "\xff\xc3";
  page.configuration = {{hostile, hostile, hostile}};
  page.figures = {{hostile, hostile, hostile}};
  for (std::string& name : page.memory.classes)
    name = hostile;
  page.memory.note = hostile;
  for (HtmlSplit::Part& part : page.split.parts)
    part.name = hostile;
  for (HtmlLoad& load : page.loads)
    load.name = hostile;
  page.overhead = {{1, 2}, {{hostile, {0.5, 0.25}}}, hostile, hostile, 1, hostile};
  const std::string html = step.html();
  const XmlDocument document = markup_of(html);
  CAPTURE(document.fault);
  REQUIRE(document.fault.empty());
  CHECK(count_of(document, "script") == scripts);
  CHECK(count_of(document, "img") == images);
  for (const XmlElement& element : document.elements)
    CHECK_FALSE(element.attributes.contains("onerror"));
  const nlohmann::json facts = facts_of(html);
  CHECK(facts["overhead"]["note"] == hostile);
  CHECK(facts["memory"]["classes"][0] == hostile);
  CHECK(facts["overhead"]["lines"][0]["y"] == nlohmann::json{0.5, 0.25});
}

TEST_CASE("a step of weeks is told in nanoseconds", "[simulator]") {
  const ActionTimes long_times = action_times(max_duration, max_duration / 2, max_duration / 2);
  const Step step(small_program(Policy::cached),
                  CostModel(long_times, Link{us(7), SimTime(0), SimTime(0)}, storage_bytes));
  REQUIRE(step.timeline.step.count() > std::int64_t{1} << 53);
  const std::string html = step.html();
  CHECK(facts_of(html)["tick_ps"] == 1000);
  CHECK(html.find("rounded down to nanoseconds") != std::string::npos);
  CHECK(step.actions(html)[0][0].end == step.timeline.ranks[0].compute[0].end.count() / 1000);
}

TEST_CASE("a page whose lists do not fit its names is refused", "[simulator]") {
  const Step good(small_program(Policy::cached), unit_time(us(50)));
  const auto refused = [&](auto change) {
    Step step = good;
    change(step.page);
    CHECK_THROWS_AS(step.html(), InputError);
  };
  refused([](HtmlPage& page) { page.split.times.pop_back(); });
  refused([](HtmlPage& page) { page.memory.classes.emplace_back("more"); });
  refused([](HtmlPage& page) { page.memory.ranks.pop_back(); });
  refused([](HtmlPage& page) { page.memory.ranks[1].chunks.pop_back(); });
  refused([](HtmlPage& page) { page.overhead = {{1, 2}, {{"line", {1}}}, "", "", 0, ""}; });
  HtmlPage without = good.page;
  without.memory = {};
  without.links.clear();
  without.loads.clear();
  Step bare = good;
  bare.page = without;
  CHECK_NOTHROW(bare.html());
}

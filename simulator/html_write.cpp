// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <ostream>
#include <stdexcept>

#include <fmt/format.h>

#include "html_assets.hpp"
#include "html_bytes.hpp"
#include "html_events.hpp"
#include "html_json.hpp"
#include "html_tables.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/html_page.hpp"
#include "plumb/simulator/svg_timeline.hpp"
#include "svg_text.hpp"

namespace plumb {
namespace {

// A drawing for readers without scripts; larger steps have the tables only.
constexpr std::size_t most_drawn_actions = 20'000;
constexpr std::size_t most_drawing_bytes = 600'000;
constexpr std::size_t most_classes = 24;

std::string_view key_of(HtmlPartKind kind) {
  constexpr std::array<std::string_view, 11> keys = {"F",    "B",      "I",      "W",        "wait", "queue",
                                                     "wire", "warmup", "steady", "cooldown", "other"};
  return keys.at(static_cast<std::size_t>(kind));
}

void require_size(bool fits, std::string_view what) {
  if (!fits)
    throw InputError(fmt::format("the page's {} has not the length that its names and the program ask for", what));
}

void require_complete(const Program& program, const HtmlPage& page) {
  const std::size_t num_ranks = program.ranks.size();
  require_size(page.split.times.size() == num_ranks * page.split.parts.size(), "split");
  const HtmlMemory& memory = page.memory;
  require_size(memory.classes.size() <= most_classes, "list of memory classes");
  require_size(memory.ranks.empty() || memory.ranks.size() == num_ranks, "memory");
  for (const HtmlMemorySeries& series : memory.ranks) {
    require_size(series.bytes.size() == series.times.size() * memory.classes.size(), "memory of a rank");
    require_size(series.chunks.empty() || series.chunks.size() == series.times.size(),
                 "count of activations of a rank");
  }
  for (const HtmlCurve::Line& line : page.overhead.lines)
    require_size(line.y.size() == page.overhead.x.size(), "curve");
}

class PageWriter {
 public:
  PageWriter(std::ostream& out, const Program& program, const CostModel& costs, const Timeline& timeline,
             const SimReport& report, const HtmlPage& page, const HtmlLimits& limits)
      : out_(out),
        program_(program),
        costs_(costs),
        timeline_(timeline),
        report_(report),
        page_(page),
        limits_(limits),
        tick_(tick_of(timeline.step)) {}

  void write() {
    actions_ = action_stream(program_, timeline_, limits_);
    messages_ = message_stream(program_, timeline_, limits_);
    memory_ = memory_stream(page_.memory, tick_, limits_, memory_was_thinned_);
    std::string_view rest = html_assets().skeleton;
    while (true) {
      const std::size_t open = rest.find("{{");
      put(rest.substr(0, open));
      if (open == std::string_view::npos) return;
      const std::size_t close = rest.find("}}", open);
      fill(rest.substr(open + 2, close - open - 2));
      rest.remove_prefix(close + 2);
    }
  }

 private:
  void put(std::string_view text) { out_.write(text.data(), static_cast<std::streamsize>(text.size())); }

  void fill(std::string_view place) {
    const HtmlAssets assets = html_assets();
    if (place == "title") return put(xml_escaped(page_.title));
    if (place == "subtitle") return put(xml_escaped(page_.subtitle));
    if (place == "style") return put(assets.style);
    if (place == "script") {
      for (const std::string_view piece : assets.script)
        put(piece);
      return;
    }
    if (place == "style_hash") return put(assets.style_hash);
    if (place == "script_hash") return put(assets.script_hash);
    if (place == "configuration") return put(facts_html(page_.configuration));
    if (place == "figures") return put(figures_html(page_.figures));
    if (place == "notes") return put(notes());
    if (place == "drawing") return put(drawing());
    if (place == "ranks_table") return put(ranks_table(program_, report_, page_, limits_));
    if (place == "hops_table") {
      return put(hops_table(report_, costs_.bytes(), program_.layout.microbatches(), limits_));
    }
    if (place == "loads_table") return put(loads_table(page_, timeline_.step, limits_));
    if (place == "path_table") return put(path_table(page_, timeline_.step, limits_));
    if (place == "curve_table") return put(curve_table(page_.overhead));
    if (place == "facts") return put(facts());
    if (place == "actions") return put(base64(actions_.bytes));
    if (place == "messages") return put(base64(messages_.bytes));
    if (place == "path") return put(base64(path_stream(page_.path, tick_, limits_)));
    if (place == "transfers") return put(base64(transfer_stream(program_)));
    if (place == "memory") return put(base64(memory_));
    throw std::logic_error(fmt::format("the page's skeleton has an unknown place {}", place));
  }

  std::string note(const EventStream& stream, std::string_view what) const {
    if (!stream.left_out) return {};
    return fmt::format(
        "<p class=\"note\">This step has {} {}; the timeline holds {} of them and leaves out those "
        "between {} and {}. All other figures are of the whole step.</p>\n",
        stream.all, what, stream.kept, time_text(stream.left_out->from, timeline_.step),
        time_text(stream.left_out->to, timeline_.step));
  }

  std::string notes() const {
    std::string html = note(actions_, "computations") + note(messages_, "messages");
    if (memory_was_thinned_) {
      html +=
          "<p class=\"note\">Memory over time is thinned: of neighbouring changes the one with the most bytes is "
          "shown. Peaks are exact.</p>\n";
    }
    if (tick_ != 1) html += "<p class=\"note\">Times are rounded down to nanoseconds.</p>\n";
    return html;
  }

  // As an image of its own, so that its style does not meet the page's.
  std::string drawing() const {
    if (actions_.all > most_drawn_actions) return {};
    const std::string svg = svg_timeline(program_, timeline_, {.title = page_.title, .subtitle = page_.subtitle});
    if (svg.size() > most_drawing_bytes) return {};
    return fmt::format(
        "<img alt=\"The step as a drawing: ranks as rows, time to the right\" "
        "src=\"data:image/svg+xml;base64,{}\"/>",
        base64(svg));
  }

  std::string facts() const {
    HtmlJson json;
    json.begin_object();
    const Layout& layout = program_.layout;
    json.add("pp", std::int64_t{layout.pp()});
    json.add("vp", std::int64_t{layout.vp()});
    json.add("microbatches", std::int64_t{layout.microbatches()});
    json.key("chunk_rank");
    json.begin_array();
    for (int chunk = 0; chunk < layout.num_chunks(); ++chunk)
      json.add(std::int64_t{layout.rank_of(ChunkId(chunk)).value});
    json.end_array();
    json.key("chunk_stage");
    json.begin_array();
    for (int chunk = 0; chunk < layout.num_chunks(); ++chunk)
      json.add(std::int64_t{layout.virtual_stage_of(ChunkId(chunk)).value});
    json.end_array();
    json.add("tick_ps", tick_);
    json.add("step", ticks(timeline_.step));
    json.add("value_bytes", costs_.bytes().value);
    json.add("gradient_bytes", costs_.bytes().gradient_wire);
    add_stream(json, "actions", actions_);
    add_stream(json, "messages", messages_);
    add_split(json);
    add_hops(json);
    add_links(json);
    add_loads(json);
    add_memory(json);
    add_curve(json);
    json.end_object();
    return json.take();
  }

  std::int64_t ticks(SimTime time) const { return time.count() / tick_; }

  void add_stream(HtmlJson& json, std::string_view name, const EventStream& stream) const {
    json.key(name);
    json.begin_object();
    json.add("all", static_cast<std::int64_t>(stream.all));
    json.add("kept", static_cast<std::int64_t>(stream.kept));
    if (stream.left_out) {
      json.add("left_out_from", ticks(stream.left_out->from));
      json.add("left_out_to", ticks(stream.left_out->to));
    }
    json.end_object();
  }

  void add_split(HtmlJson& json) const {
    json.key("split");
    json.begin_object();
    json.key("parts");
    json.begin_array();
    for (const HtmlSplit::Part& part : page_.split.parts) {
      json.begin_object();
      json.add("kind", key_of(part.kind));
      json.add("name", std::string_view(part.name));
      json.end_object();
    }
    json.end_array();
    json.key("times");
    json.begin_array();
    for (const SimTime time : page_.split.times)
      json.add(ticks(time));
    json.end_array();
    json.end_object();
  }

  // Lists side by side, one entry per pair of chunks.
  void add_hops(HtmlJson& json) const {
    const UnitBytes& unit = costs_.bytes();
    const double microbatches = program_.layout.microbatches();
    const auto add = [&](std::string_view name, const auto& value_of) {
      json.key(name);
      json.begin_array();
      for (const HopReport& hop : report_.hops)
        json.add(static_cast<std::int64_t>(value_of(hop)));
      json.end_array();
    };
    json.key("hops");
    json.begin_object();
    add("from", [](const HopReport& hop) { return hop.from_chunk.value; });
    add("to", [](const HopReport& hop) { return hop.to_chunk.value; });
    add("forward", [&](const HopReport& hop) {
      return hop.bytes_per_step - static_cast<std::int64_t>(hop.backward_units * microbatches) * unit.gradient_wire;
    });
    add("backward", [&](const HopReport& hop) {
      return static_cast<std::int64_t>(hop.backward_units * microbatches) * unit.gradient_wire;
    });
    add("queued", [&](const HopReport& hop) { return ticks(hop.queued); });
    add("on_wire", [&](const HopReport& hop) { return ticks(hop.on_wire); });
    json.end_object();
  }

  void add_links(HtmlJson& json) const {
    std::vector<HtmlLink> links = page_.links;
    if (links.size() > limits_.links) {
      std::stable_sort(links.begin(), links.end(),
                       [](const HtmlLink& a, const HtmlLink& b) { return a.bytes > b.bytes; });
      links.resize(limits_.links);
    }
    const auto add = [&](std::string_view name, const auto& value_of) {
      json.key(name);
      json.begin_array();
      for (const HtmlLink& link : links)
        json.add(static_cast<std::int64_t>(value_of(link)));
      json.end_array();
    };
    json.key("links");
    json.begin_object();
    json.add("all", static_cast<std::int64_t>(page_.links.size()));
    add("from", [](const HtmlLink& link) { return link.from.value; });
    add("to", [](const HtmlLink& link) { return link.to.value; });
    add("messages", [](const HtmlLink& link) { return link.num_messages; });
    add("bytes", [](const HtmlLink& link) { return link.bytes; });
    add("moving", [&](const HtmlLink& link) { return ticks(link.moving); });
    add("queued", [&](const HtmlLink& link) { return ticks(link.queued); });
    json.end_object();
  }

  void add_loads(HtmlJson& json) const {
    json.key("loads");
    json.begin_array();
    for (const HtmlLoad& load : page_.loads) {
      json.begin_object();
      json.add("name", std::string_view(load.name));
      json.add("messages", load.num_messages);
      json.add("bytes", load.bytes);
      json.add("busy", ticks(load.busy));
      json.end_object();
    }
    json.end_array();
  }

  void add_memory(HtmlJson& json) const {
    json.key("memory");
    json.begin_object();
    json.add("ranks", static_cast<std::int64_t>(page_.memory.ranks.size()));
    json.key("classes");
    json.begin_array();
    for (const std::string& name : page_.memory.classes)
      json.add(std::string_view(name));
    json.end_array();
    json.add("note", std::string_view(page_.memory.note));
    json.end_object();
  }

  void add_curve(HtmlJson& json) const {
    const HtmlCurve& curve = page_.overhead;
    json.key("overhead");
    json.begin_object();
    json.add_list("x", curve.x);
    json.key("lines");
    json.begin_array();
    for (const HtmlCurve::Line& line : curve.lines) {
      json.begin_object();
      json.add("name", std::string_view(line.name));
      json.add_list("y", line.y);
      json.end_object();
    }
    json.end_array();
    json.add("x_name", std::string_view(curve.x_name));
    json.add("y_name", std::string_view(curve.y_name));
    json.add("here", curve.here);
    json.add("note", std::string_view(curve.note));
    json.end_object();
  }

  std::ostream& out_;
  const Program& program_;
  const CostModel& costs_;
  const Timeline& timeline_;
  const SimReport& report_;
  const HtmlPage& page_;
  const HtmlLimits& limits_;
  std::int64_t tick_;
  EventStream actions_;
  EventStream messages_;
  std::string memory_;
  bool memory_was_thinned_ = false;
};

}  // namespace

void write_html(std::ostream& out, const Program& program, const CostModel& costs, const Timeline& timeline,
                const SimReport& report, const HtmlPage& page, const HtmlLimits& limits) {
  require_complete(program, page);
  PageWriter(out, program, costs, timeline, report, page, limits).write();
}

}  // namespace plumb

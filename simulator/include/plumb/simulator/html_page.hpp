// SPDX-License-Identifier: Apache-2.0
//
// html_page.hpp: a simulated step as one HTML page that needs nothing but a browser: no network, no other file.
//
// An HtmlPage is what the page shows beside the timeline itself, as plain data: classes of memory, parts of a rank's
// step, links and the curve are lists with names, so that whoever knows more of them fills in more. make_html_page()
// fills what follows from program, costs and timeline; title, configuration, figures and curve are the caller's. All
// names may be any text: they are escaped here. Times are exact; a step too long for whole picoseconds in a browser's
// numbers is in nanoseconds. Steps beyond HtmlLimits lose their middle, and the page says so. Same input, same bytes.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/critical_path.hpp"
#include "plumb/simulator/memory_classes.hpp"
#include "plumb/simulator/network_model.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

struct HtmlFact {
  std::string name;
  std::string value;
  std::string detail{};  // a few more words, may be empty
};

// What is resident on one rank: from times[i] until times[i + 1], bytes[i * classes + c] of class c.
struct HtmlMemorySeries {
  std::vector<SimTime> times;  // ascending
  std::vector<std::int64_t> bytes;
  std::vector<std::int32_t> chunks;  // activations alive, counted; empty: not known
};

struct HtmlMemory {
  std::vector<std::string> classes;     // stacked from the bottom, at most 24
  std::vector<HtmlMemorySeries> ranks;  // [rank]; empty: not shown
  std::string note;                     // what is and what is not counted
};

// What a part of a rank's step is drawn as.
enum class HtmlPartKind : std::uint8_t {
  forward,
  backward,
  backward_input,
  backward_weight,
  exposed_wait,
  exposed_queue,
  exposed_wire,
  idle_warmup,
  idle_steady,
  idle_cooldown,
  other
};

struct HtmlSplit {
  struct Part {
    HtmlPartKind kind = HtmlPartKind::other;
    std::string name;
  };
  std::vector<Part> parts;
  std::vector<SimTime> times;  // [rank * parts + part]; the parts of a rank add up to the step
};

// All that went from one rank to another.
struct HtmlLink {
  RankId from{};
  RankId to{};
  std::int64_t num_messages = 0;
  std::int64_t bytes = 0;
  SimTime moving{0};  // summed over messages: from start until they had left
  SimTime queued{0};  // summed over messages: ready at both ends and not started
};

// All that went through one interface.
struct HtmlLoad {
  std::string name;
  std::int64_t num_messages = 0;
  std::int64_t bytes = 0;
  SimTime busy{0};  // while at least one message moved
};

// lines[l].y[i] at x[i]; a point that is not known is NaN.
struct HtmlCurve {
  struct Line {
    std::string name;
    std::vector<double> y;
  };
  std::vector<double> x;  // ascending, above 0
  std::vector<Line> lines;
  std::string x_name;
  std::string y_name;
  double here = 0;   // marked, where above 0
  std::string note;  // how it was made, or why it is not there
};

struct HtmlPage {
  std::string title;
  std::string subtitle;
  std::vector<HtmlFact> configuration;
  std::vector<HtmlFact> figures;
  HtmlMemory memory;
  HtmlSplit split;
  std::vector<HtmlLink> links;
  std::vector<HtmlLoad> loads;
  std::vector<PathPiece> path;  // the longest chain, in order of time, without gaps; empty: not shown
  HtmlCurve overhead;           // step / step with a standard residual - 1, over the rate of the links
};

// What a page holds at most; together less than 20 MB.
struct HtmlLimits {
  std::size_t actions = 1'200'000;
  std::size_t action_bytes = 6'500'000;  // before base64, which adds a third
  std::size_t messages = 400'000;
  std::size_t message_bytes = 4'500'000;
  std::size_t memory_points = 150'000;  // of all ranks together; more are thinned, peaks kept
  std::size_t links = 8'192;            // the ones with the most bytes
  std::size_t path_pieces = 100'000;    // of the longest chain; where there are more it is a table only
  std::size_t table_rows = 256;
};

// Memory, split, links, loads, the longest chain, and figures: step, bubble, exposed communication, the kinds of what
// is on the longest chain, traffic, peak. The title is the schedule's name. `report` and `timeline` must come from the
// program, the costs and, where there is one, the network. Without `device` memory is what passes between chunks, in
// its slots, as `costs` weighs it.
HtmlPage make_html_page(const Program& program, const CostModel& costs, const Timeline& timeline,
                        const SimReport& report, const NetworkModel* network = nullptr,
                        const DeviceBytes* device = nullptr);

// Throws InputError where a list of `page` has not the length its names and the program ask for. A failing stream is
// left in its failed state for the caller to see.
void write_html(std::ostream& out, const Program& program, const CostModel& costs, const Timeline& timeline,
                const SimReport& report, const HtmlPage& page, const HtmlLimits& limits = {});

}  // namespace plumb

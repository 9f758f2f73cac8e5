// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/html_page.hpp"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "html_tables.hpp"
#include "plumb/simulator/link_load.hpp"
#include "svg_text.hpp"

namespace plumb {
namespace {

// Classes that are empty on all ranks all the time are left out.
std::vector<MemoryClass> used_classes(const std::vector<std::vector<MemoryBytesPoint>>& curves) {
  std::vector<MemoryClass> used;
  for (std::size_t c = 0; c < num_memory_classes; ++c) {
    const auto memory_class = static_cast<MemoryClass>(c);
    const bool is_used = std::any_of(curves.begin(), curves.end(), [&](const auto& curve) {
      return std::any_of(curve.begin(), curve.end(), [&](const auto& point) { return point.bytes[memory_class] > 0; });
    });
    if (is_used) used.push_back(memory_class);
  }
  return used;
}

// Bytes and the count of activations change at instants of their own: a point wherever either does.
HtmlMemorySeries series_of(const std::vector<MemoryBytesPoint>& bytes, const std::vector<MemoryPoint>& counts,
                           const std::vector<MemoryClass>& classes) {
  HtmlMemorySeries series;
  std::size_t next_bytes = 0;
  std::size_t next_count = 0;
  while (next_bytes < bytes.size() || next_count < counts.size()) {
    const SimTime at = std::min(next_bytes < bytes.size() ? bytes[next_bytes].at : SimTime::max(),
                                next_count < counts.size() ? counts[next_count].at : SimTime::max());
    if (next_bytes < bytes.size() && bytes[next_bytes].at == at) ++next_bytes;
    if (next_count < counts.size() && counts[next_count].at == at) ++next_count;
    const std::int32_t chunks = next_count == 0 ? 0 : counts[next_count - 1].resident.activation_chunks;
    const bool has_bytes = next_bytes > 0;
    series.times.push_back(at);
    series.chunks.push_back(chunks);
    for (const MemoryClass memory_class : classes)
      series.bytes.push_back(has_bytes ? bytes[next_bytes - 1].bytes[memory_class] : 0);
  }
  return series;
}

HtmlMemory memory_of(const Program& program, const CostModel& costs, const Timeline& timeline,
                     const DeviceBytes* device) {
  const DeviceBytes slots{costs.bytes(), {}, {}};
  std::vector<std::vector<MemoryBytesPoint>> curves;
  for (std::size_t r = 0; r < program.ranks.size(); ++r)
    curves.push_back(memory_by_class(program, timeline, RankId(r), device == nullptr ? slots : *device));
  const std::vector<MemoryClass> classes = used_classes(curves);
  HtmlMemory memory;
  for (const MemoryClass memory_class : classes)
    memory.classes.emplace_back(to_string(memory_class));
  for (std::size_t r = 0; r < program.ranks.size(); ++r)
    memory.ranks.push_back(series_of(curves[r], memory_curve(program, timeline, RankId(r)), classes));
  memory.note = device == nullptr ? "What passes between chunks, in its slots. Weights, gradients of weights and "
                                    "activations are not in it: those are counted, not weighed."
                                  : "Of one device of the rank.";
  return memory;
}

HtmlSplit split_of(const Program& program, const Timeline& timeline, const SimReport& report) {
  struct OpPart {
    Op op;
    HtmlPartKind kind;
    const char* name;
  };
  constexpr OpPart op_parts[] = {{Op::forward, HtmlPartKind::forward, "F"},
                                 {Op::backward, HtmlPartKind::backward, "B"},
                                 {Op::backward_input, HtmlPartKind::backward_input, "I"},
                                 {Op::backward_weight, HtmlPartKind::backward_weight, "W"}};
  std::vector<std::array<SimTime, 4>> busy(program.ranks.size());
  std::array<bool, 4> is_used{};
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    for (std::size_t i = 0; i < program.ranks[r].compute.size(); ++i) {
      const auto op = static_cast<std::size_t>(program.ranks[r].compute[i].compute.op);
      const ComputeTimes& times = timeline.ranks[r].compute[i];
      busy[r].at(op) += times.end - times.start;
      is_used.at(op) = true;
    }
  }
  HtmlSplit split;
  for (const OpPart& part : op_parts) {
    if (is_used.at(static_cast<std::size_t>(part.op))) split.parts.push_back({part.kind, part.name});
  }
  split.parts.push_back({HtmlPartKind::exposed_wait, "exposed: late"});
  split.parts.push_back({HtmlPartKind::exposed_queue, "exposed: queue"});
  split.parts.push_back({HtmlPartKind::exposed_wire, "exposed: wire"});
  split.parts.push_back({HtmlPartKind::idle_warmup, "idle: warm-up"});
  split.parts.push_back({HtmlPartKind::idle_steady, "idle: steady"});
  split.parts.push_back({HtmlPartKind::idle_cooldown, "idle: cool-down"});
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    for (const OpPart& part : op_parts) {
      const auto op = static_cast<std::size_t>(part.op);
      if (is_used.at(op)) split.times.push_back(busy[r].at(op));
    }
    const Bubble& bubble = report.ranks[r].bubble;
    const Exposure& exposed = report.ranks[r].exposed;
    for (const SimTime time :
         {exposed.wait, exposed.queue, exposed.wire, bubble.warmup, bubble.steady, bubble.cooldown})
      split.times.push_back(time);
  }
  return split;
}

std::vector<HtmlLink> links_of(const Program& program, const CostModel& costs, const Timeline& timeline) {
  std::map<std::pair<RankId, RankId>, HtmlLink> links;
  for (std::size_t m = 0; m < timeline.messages.size(); ++m) {
    const MessageId message(m);
    const MessageTimes& times = timeline.messages[m];
    HtmlLink& link = links[{program.sender(message), program.receiver(message)}];
    const bool forward = program.messages[m].direction == Direction::forward;
    ++link.num_messages;
    link.bytes += times.units * (forward ? costs.bytes().value : costs.bytes().gradient_wire);
    link.moving += times.sent - times.start;
    link.queued += times.start - std::max(times.send_ready, times.posted);
  }
  std::vector<HtmlLink> all;
  for (auto& [ends, link] : links) {
    link.from = ends.first;
    link.to = ends.second;
    all.push_back(link);
  }
  return all;
}

std::string percent(double fraction) { return fmt::format("{:.2f} %", fraction * 100); }

// "5.7 GiB", rank and time: over all classes.
HtmlFact peak_of(const HtmlMemory& memory, SimTime step, std::string name) {
  const std::size_t num_classes = memory.classes.size();
  std::int64_t most = -1;
  HtmlFact fact{std::move(name), "0 B"};
  for (std::size_t r = 0; r < memory.ranks.size(); ++r) {
    const HtmlMemorySeries& series = memory.ranks[r];
    for (std::size_t i = 0; i < series.times.size(); ++i) {
      std::int64_t sum = 0;
      for (std::size_t c = 0; c < num_classes; ++c)
        sum += series.bytes[i * num_classes + c];
      if (sum <= most) continue;
      most = sum;
      fact.value = byte_text(sum);
      fact.detail = fmt::format("rank {} at {}", r, time_text(series.times[i], step));
    }
  }
  return fact;
}

// How much of the step computes, and what the rest of the chain is.
HtmlFact chain_of(const std::vector<PathPiece>& path, SimTime step) {
  std::map<PathKind, SimTime> times;
  for (const PathPiece& piece : path)
    times[piece.kind] += piece.end - piece.begin;
  const auto share = [&](SimTime time) { return percent(step > SimTime(0) ? to_us(time) / to_us(step) : 0); };
  const SimTime busy = times[PathKind::forward] + times[PathKind::backward] + times[PathKind::backward_weight];
  return {"longest chain", share(busy),
          fmt::format("computing; messages on their way {}, queued {}, nothing to do {}", share(times[PathKind::wire]),
                      share(times[PathKind::queue]), share(times[PathKind::wait]))};
}

std::vector<HtmlFact> figures_of(const SimReport& report) {
  const double step = to_us(report.step);
  const double waiting = to_us(report.bubble.waiting);
  return {{"step", time_text(report.step, report.step, 6)},
          {"bubble", percent(report.bubble_over_step), "idle / (ranks x step)"},
          {"bubble", percent(report.bubble_over_ideal), "idle / busy"},
          {"exposed communication", time_text(report.bubble.waiting, report.bubble.waiting),
           fmt::format("mean over ranks, {} of the step", percent(step > 0 ? waiting / step : 0))},
          {"traffic per step", byte_text(report.bytes_per_step),
           fmt::format("{:g} units forward, {:g} backward per microbatch, {} the formula",
                       report.forward_units_per_microbatch, report.backward_units_per_microbatch,
                       report.traffic_equals_formula ? "equal to" : "NOT")}};
}

}  // namespace

HtmlPage make_html_page(const Program& program, const CostModel& costs, const Timeline& timeline,
                        const SimReport& report, const NetworkModel* network, const DeviceBytes* device) {
  HtmlPage page;
  page.title = program.schedule_name;
  page.figures = figures_of(report);
  page.memory = memory_of(program, costs, timeline, device);
  page.figures.push_back(
      peak_of(page.memory, report.step, device == nullptr ? "peak of what passes between chunks" : "peak memory"));
  page.path = critical_path(program, costs, timeline, network);
  page.figures.push_back(chain_of(page.path, timeline.step));
  page.split = split_of(program, timeline, report);
  page.links = links_of(program, costs, timeline);
  for (const LinkLoad& load : link_loads(program, costs, timeline, network).links)
    page.loads.push_back({load.name, load.num_messages, load.bytes, load.busy});
  return page;
}

}  // namespace plumb

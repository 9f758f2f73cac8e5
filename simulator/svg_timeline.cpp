// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/svg_timeline.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "svg_axis.hpp"
#include "svg_fold.hpp"
#include "svg_text.hpp"

namespace plumb {
namespace {

constexpr double left = 64;
constexpr double right = 28;
constexpr double least_width = 820;
constexpr double band_gap = 46;
constexpr double legend_line = 20;
constexpr int most_shades = 8;
constexpr int most_titles = 3000;  // cells that say more when pointed at
constexpr std::size_t most_messages = 64;

class TimelineDrawing {
 public:
  TimelineDrawing(const Program& program, const Timeline& timeline, const SvgOptions& options)
      : program_(program),
        timeline_(timeline),
        options_(options),
        rows_(choose_rows(program.layout.pp())),
        axis_(fold(program, timeline, rows_)),
        num_shades_(std::min(program.layout.vp(), most_shades)),
        width_(std::max(least_width, left + axis_.band_width() + right)) {
    for (const RankTimeline& rank : timeline.ranks) {
      for (std::size_t i = 0; i < rank.compute.size(); ++i) {
        const ComputeTimes& times = rank.compute[i];
        has_waiting_ = has_waiting_ || times.exposed.count() > 0;
        has_idle_ = has_idle_ || (i > 0 && times.start - times.exposed > rank.compute[i - 1].end);
      }
    }
    for (const RankProgram& rank : program.ranks) {
      num_cells_ += static_cast<int>(rank.compute.size());
      for (const ComputeStep& step : rank.compute) {
        operations_.insert(letter(step.compute.op));
        has_pairs_ = has_pairs_ || step.overlaps_next;
      }
    }
  }

  std::string draw() {
    legend(70);
    first_band_ = legend_bottom_ + 14;
    for (int band = 0; band < axis_.num_bands(); ++band) {
      frame(band);
    }
    for (std::size_t row = 0; row < rows_.ranks.size(); ++row) {
      draw_rank(row);
    }
    draw_breaks();
    if (shows_messages()) draw_messages();
    const double height = first_band_ + axis_.num_bands() * band_step() - 8;
    return head(height) + body_ + "</svg>\n";
  }

 private:
  double band_step() const { return rows_.band_height() + band_gap; }
  double band_top(int band) const { return first_band_ + band * band_step(); }
  double font() const { return rows_.height >= 16 ? 10 : 8; }
  bool shows_messages() const {
    return options_.messages && timeline_.messages.size() <= most_messages && rows_.gap_before == 0 &&
           std::any_of(timeline_.messages.begin(), timeline_.messages.end(),
                       [](const MessageTimes& m) { return m.arrived > m.start; });
  }

  int shade(ChunkId chunk) const {
    const int vp = program_.layout.vp();
    const int stage = program_.layout.virtual_stage_of(chunk).value;
    return vp <= most_shades ? stage : stage * (most_shades - 1) / (vp - 1);
  }
  std::string class_of(const Compute& compute) const {
    return fmt::format("{}{}", letter(compute.op), shade(compute.chunk));
  }

  void rect(double x, double y, double width, double height, std::string_view classes, std::string_view title = {}) {
    body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"{}\"", px(x), px(y), px(width),
                         px(height), classes);
    body_ += title.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", xml_escaped(title));
  }
  void text(double x, double y, std::string_view what, std::string_view classes) {
    body_ += fmt::format("<text x=\"{}\" y=\"{}\" class=\"{}\">{}</text>\n", px(x), px(y), classes, xml_escaped(what));
  }
  void line(double x1, double y1, double x2, double y2, std::string_view classes) {
    body_ += fmt::format("<path d=\"M{} {}L{} {}\" class=\"{}\"/>\n", px(x1), px(y1), px(x2), px(y2), classes);
  }

  std::string head(double height) const {
    const Layout& layout = program_.layout;
    SimTime busy{0};
    SimTime waiting{0};
    for (const RankTimeline& rank : timeline_.ranks) {
      for (const ComputeTimes& times : rank.compute) {
        busy += times.end - times.start;
        waiting += times.exposed;
      }
    }
    const double all = static_cast<double>(timeline_.step.count()) * layout.pp();
    const double idle = 100 - 100 * static_cast<double>(busy.count()) / all;
    const double exposed = 100 * static_cast<double>(waiting.count()) / all;
    std::string facts = fmt::format(
        "P = {} rank{}, V = {} virtual stage{} ({} placement), M = {} microbatch{}; step {}, idle {:.1f} % of it",
        layout.pp(), layout.pp() == 1 ? "" : "s", layout.vp(), layout.vp() == 1 ? "" : "s",
        to_string(layout.placement()), layout.microbatches(), layout.microbatches() == 1 ? "" : "es",
        time_text(timeline_.step, timeline_.step), idle);
    if (waiting.count() > 0) facts += fmt::format(", {:.1f} % waiting for messages", exposed);
    const std::string& title = options_.title.empty() ? program_.schedule_name : options_.title;
    std::string out = fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" "
        "height=\"{1}\" viewBox=\"0 0 {0} {1}\" font-family=\"system-ui,Helvetica,Arial,sans-serif\" "
        "fill=\"#1f2933\">\n<title>{2}</title>\n<style>\n",
        px(width_), px(height), xml_escaped(title));
    for (const char operation : operations_) {
      for (int i = 0; i < num_shades_; ++i)
        out += fmt::format(".{}{}{{fill:{}}}\n", operation, i, shade_of(operation, i, num_shades_));
    }
    out += fmt::format(
        "rect{{stroke:#fff;stroke-width:.7}}\n.n,.k{{font-size:{}px;text-anchor:middle}}\n.k{{font-size:8px}}\n"
        ".l{{font-size:11px}}\n.r{{font-size:{}px;text-anchor:end}}\n"
        ".t{{font-size:10px;text-anchor:middle;fill:#52606d}}\n.s{{font-size:12px;fill:#52606d}}\n"
        ".h{{font-size:16px;font-weight:600}}\n.e{{fill:#f5f7fa;stroke:none}}\n.i{{fill:#dde3ea;stroke:none}}\n"
        ".w{{fill:url(#w);stroke:none}}\n.g{{fill:#fff;stroke:none}}\n"
        ".b{{font-size:9.5px;text-anchor:middle;fill:#52606d}}\n"
        ".a{{stroke:#7b8794;stroke-width:.8;fill:none}}\n.z{{stroke:#7b8794;stroke-width:1;stroke-dasharray:3 2;"
        "fill:none}}\n.m{{stroke:#323f4b;stroke-width:.9;stroke-opacity:.75;fill:none;marker-end:url(#m)}}\n",
        px(font()), rows_.height >= 16 ? "11" : "9");
    out +=
        "</style>\n<defs><pattern id=\"w\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" fill=\"#f5f7fa\" stroke=\"none\"/>"
        "<path d=\"M0 0V5\" stroke=\"#9aa5b1\" stroke-width=\"2.4\"/></pattern>\n<marker id=\"m\" "
        "markerWidth=\"5\" markerHeight=\"5\" refX=\"4.5\" refY=\"2.5\" orient=\"auto\"><path "
        "d=\"M0 0L5 2.5L0 5z\" fill=\"#323f4b\"/></marker></defs>\n";
    out += fmt::format("<rect width=\"{}\" height=\"{}\" class=\"g\"/>\n", px(width_), px(height));
    out += fmt::format(
        "<text x=\"{0}\" y=\"26\" class=\"h\">{1}</text>\n<text x=\"{0}\" y=\"46\" class=\"s\">{2}</text>\n", px(16),
        xml_escaped(title), xml_escaped(facts));
    if (!options_.subtitle.empty()) {
      out += fmt::format("<text x=\"{}\" y=\"63\" class=\"s\">{}</text>\n", px(16), xml_escaped(options_.subtitle));
    }
    return out;
  }

  // Items follow each other and wrap at the right edge.
  void legend(double y) {
    double x = 16;
    double baseline = y + (options_.subtitle.empty() ? 0 : 17);
    const auto item = [&](double swatch, std::string_view label, auto&& draw_swatch) {
      const double needed = swatch + 6 + text_width(label, 10) + 20;
      if (x + needed > width_ && x > 16) {
        x = 16;
        baseline += legend_line;
      }
      draw_swatch(x, baseline - 10);
      text(x + swatch + 6, baseline, label, "l");
      x += needed;
    };
    const auto box = [&](std::string classes) {
      return [this, classes](double at, double top) { rect(at, top, 14, 12, classes); };
    };
    const auto name = [](char operation) -> std::string_view {
      return operation == 'F'   ? "forward (F)"
             : operation == 'B' ? "backward (B)"
             : operation == 'I' ? "backward for inputs (I)"
                                : "backward for weights (W)";
    };
    for (const char operation : {'F', 'B', 'I', 'W'}) {
      if (operations_.contains(operation)) item(14, name(operation), box(fmt::format("{}0", operation)));
    }
    if (has_pairs_) {
      item(14, "overlapped pair", [this](double at, double top) {
        rect(at, top, 14, 6, "F0");
        rect(at, top + 6, 14, 6, operations_.contains('B') ? "B0" : "I0");
      });
    }
    if (num_shades_ > 1) {
      item(14.0 * num_shades_, fmt::format("virtual stage 0 to {}", program_.layout.vp() - 1),
           [this](double at, double top) {
             const char operation = operations_.empty()            ? 'F'
                                    : *operations_.rbegin() == 'W' ? 'F'
                                                                   : *operations_.rbegin();
             for (int i = 0; i < num_shades_; ++i)
               rect(at + 14 * i, top, 14, 12, fmt::format("{}{}", operation, i));
           });
    }
    if (has_idle_) item(14, "waiting for work elsewhere", box("i"));
    if (has_waiting_) item(14, "waiting for messages", box("w"));
    item(14, "before the first, after the last", box("e"));
    legend_bottom_ = baseline;
  }

  void frame(int band) {
    const double top = band_top(band);
    for (std::size_t row = 0; row < rows_.ranks.size(); ++row) {
      const double y = top + rows_.top(row);
      text(left - 8, y + rows_.height / 2 + 4, fmt::format("rank {}", rows_.ranks[row].value), "r");
    }
    if (rows_.gap_before > 0) {
      const std::size_t hidden = program_.ranks.size() - rows_.ranks.size();
      text(left + axis_.band_width() / 2, top + rows_.top(rows_.gap_before) - rows_.height / 2 + 3.5,
           fmt::format("\u2026 {} more ranks \u2026", hidden), "b");
    }
    // Time axis: ticks at round times, at least so far apart that their labels stay apart.
    const double bottom = top + rows_.band_height() + 3;
    for (const AxisSpan& span : axis_.spans(SimTime(0), timeline_.step)) {
      if (span.band == band) line(left + span.x, bottom, left + span.x + span.width, bottom, "a");
    }
    const SimTime tick = tick_length();
    double free_from = -1e9;
    for (const AxisPiece& piece : axis_.pieces()) {
      for (SimTime at = (piece.from + tick - SimTime(1)) / tick * tick; at <= piece.to; at += tick) {
        const auto place = axis_.locate(at);
        if (!place || place->band != band) continue;
        const double x = left + place->x;
        line(x, bottom, x, bottom + 4, "a");
        const std::string label = time_text(at, 10 * tick, 12);
        const double half = text_width(label, 10) / 2;
        if (x - half < free_from || x + half > width_ - 2) continue;
        text(x, bottom + 15, label, "t");
        free_from = x + half + 6;
      }
    }
  }

  SimTime tick_length() const {
    const double least_us = 72 / axis_.pixels_per_us();
    double us = std::pow(10, std::floor(std::log10(least_us)));
    for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
      if (us * factor >= least_us * (1 - 1e-9)) {
        us *= factor;
        break;
      }
    }
    return std::max(SimTime(1), SimTime(std::llround(us * 1e6)));
  }

  void draw_rank(std::size_t row) {
    const RankId rank = rows_.ranks[row];
    const std::vector<ComputeStep>& steps = program_.ranks[rank.index()].compute;
    const std::vector<ComputeTimes>& times = timeline_.ranks[rank.index()].compute;
    background(row, SimTime(0), timeline_.step, "e");
    if (steps.empty()) return;
    background(row, times.front().start, times.back().end, "i");
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (times[i].exposed.count() > 0) background(row, times[i].start - times[i].exposed, times[i].start, "w");
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].overlaps_next && i + 1 < steps.size()) {
        draw_pair(row, steps[i].compute, steps[i + 1].compute, times[i], times[i + 1]);
        ++i;
      } else {
        draw_cell(row, steps[i].compute, times[i].start, times[i].end);
      }
    }
  }

  void background(std::size_t row, SimTime from, SimTime to, std::string_view classes) {
    for (const AxisSpan& span : axis_.spans(from, to)) {
      rect(left + span.x, band_top(span.band) + rows_.top(row) + 0.5, span.width, rows_.height - 1, classes);
    }
  }

  std::string title_of(std::size_t row, std::string_view what, SimTime from, SimTime to) const {
    if (num_cells_ > most_titles) return {};
    return fmt::format("rank {}: {}, {} to {}", rows_.ranks[row].value, what, time_text(from, timeline_.step),
                       time_text(to, timeline_.step));
  }

  // A number only where it fits; of a cell in two bands, in its wider part.
  void number(const AxisSpan& span, double y, const Compute& compute, double size, std::string_view classes) {
    const std::string digits = fmt::to_string(compute.microbatch.value);
    if (text_width(digits, size) + 1.5 > span.width) return;
    text(left + span.x + span.width / 2, y, digits, classes);
  }

  static const AxisSpan* widest(const std::vector<AxisSpan>& spans) {
    const auto found = std::max_element(spans.begin(), spans.end(),
                                        [](const AxisSpan& a, const AxisSpan& b) { return a.width < b.width; });
    return found == spans.end() ? nullptr : &*found;
  }

  void draw_cell(std::size_t row, const Compute& compute, SimTime from, SimTime to) {
    const std::vector<AxisSpan> spans = axis_.spans(from, to);
    for (const AxisSpan& span : spans) {
      rect(left + span.x, band_top(span.band) + rows_.top(row) + 0.5, span.width, rows_.height - 1, class_of(compute),
           title_of(row, to_string(compute), from, to));
    }
    if (const AxisSpan* span = widest(spans)) {
      number(*span, band_top(span->band) + rows_.top(row) + rows_.height / 2 + font() * 0.36, compute, font(), "n");
    }
  }

  // The first half above, the second below. Both share the rank for as long as either runs; where it waits between
  // them, each stands alone in its own time.
  void draw_pair(std::size_t row, const Compute& first, const Compute& second, const ComputeTimes& a,
                 const ComputeTimes& b) {
    const bool split = b.start > a.end;
    const SimTime end = std::max(a.end, b.end);
    const std::string title =
        title_of(row, fmt::format("{} and {} together", to_string(first), to_string(second)), a.start, b.end);
    draw_half(row, first, axis_.spans(a.start, split ? a.end : end), 0,
              split ? title_of(row, to_string(first), a.start, a.end) : title);
    draw_half(row, second, axis_.spans(split ? b.start : a.start, end), 1,
              split ? title_of(row, to_string(second), b.start, b.end) : title);
  }

  void draw_half(std::size_t row, const Compute& compute, const std::vector<AxisSpan>& spans, int which,
                 const std::string& title) {
    const double height = (rows_.height - 1) / 2;
    const double offset = rows_.top(row) + 0.5 + which * height;
    for (const AxisSpan& span : spans)
      rect(left + span.x, band_top(span.band) + offset, span.width, height, class_of(compute), title);
    if (const AxisSpan* span = widest(spans); span != nullptr && rows_.height >= 20) {
      number(*span, band_top(span->band) + offset + height / 2 + 3, compute, 8, "k");
    }
  }

  void draw_breaks() {
    for (std::size_t i = 0; i < axis_.breaks().size(); ++i) {
      const AxisSpan span = axis_.break_span(i);
      const double top = band_top(span.band);
      const double bottom = top + rows_.band_height();
      const double x = left + span.x;
      line(x + 2, top, x + 2, bottom + 6, "z");
      line(x + span.width - 2, top, x + span.width - 2, bottom + 6, "z");
      const double middle = x + span.width / 2;
      const double y = (top + bottom) / 2;
      if (rows_.band_height() >= 40) text(middle, y - 12, "\u2026", "b");
      text(middle, y - 1, axis_.breaks()[i].label[0], "b");
      text(middle, y + 11, axis_.breaks()[i].label[1], "b");
    }
  }

  void draw_messages() {
    for (std::size_t m = 0; m < timeline_.messages.size(); ++m) {
      const MessageTimes& times = timeline_.messages[m];
      const auto from = axis_.locate(times.start);
      const auto to = axis_.locate(times.arrived);
      if (!from || !to || from->band != to->band) continue;
      const auto sender = program_.sender(MessageId(m)).index();
      const auto receiver = program_.receiver(MessageId(m)).index();
      const double out = rows_.height * (sender < receiver ? 0.82 : 0.18);
      const double top = band_top(from->band);
      line(left + from->x, top + rows_.top(sender) + out, left + to->x, top + rows_.top(receiver) + rows_.height - out,
           "m");
    }
  }

  const Program& program_;
  const Timeline& timeline_;
  const SvgOptions& options_;
  Rows rows_;
  Axis axis_;
  int num_shades_;
  double width_;
  double first_band_ = 0;
  double legend_bottom_ = 0;
  int num_cells_ = 0;
  std::set<char> operations_;
  bool has_pairs_ = false;
  bool has_idle_ = false;     // between two computations, not for messages
  bool has_waiting_ = false;  // for messages
  std::string body_;
};

}  // namespace

std::string svg_timeline(const Program& program, const Timeline& timeline, const SvgOptions& options) {
  if (timeline.step.count() <= 0) {
    return fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"480\" "
        "height=\"48\" font-family=\"system-ui,Helvetica,Arial,sans-serif\"><text x=\"16\" y=\"28\" "
        "font-size=\"13\">{}: nothing takes time, so there is nothing to draw</text></svg>\n",
        xml_escaped(options.title.empty() ? program.schedule_name : options.title));
  }
  return TimelineDrawing(program, timeline, options).draw();
}

}  // namespace plumb

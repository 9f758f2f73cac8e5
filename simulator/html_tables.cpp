// SPDX-License-Identifier: Apache-2.0
#include "html_tables.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "svg_text.hpp"

namespace plumb {
namespace {

std::string head_cell(std::string_view text) { return fmt::format("<th scope=\"col\">{}</th>", xml_escaped(text)); }

std::string open_table(std::string_view caption, const std::vector<std::string>& columns) {
  std::string html = fmt::format("<table><caption>{}</caption><thead><tr>", xml_escaped(caption));
  for (const std::string& column : columns)
    html += head_cell(column);
  return html + "</tr></thead><tbody>\n";
}

std::string share_cell(SimTime part, SimTime step) {
  return fmt::format("<td>{:.2f} %</td>", step.count() > 0 ? to_us(part) / to_us(step) * 100 : 0);
}

std::string milliseconds(SimTime time) { return fmt::format("<td>{:.3f}</td>", to_us(time) / 1000); }

// Where the most bytes are resident first.
std::size_t peak_of(const HtmlMemorySeries& series, std::size_t num_classes) {
  std::size_t peak = 0;
  std::int64_t most = -1;
  for (std::size_t i = 0; i < series.times.size(); ++i) {
    const auto first = series.bytes.begin() + static_cast<std::ptrdiff_t>(i * num_classes);
    const std::int64_t sum = std::accumulate(first, first + static_cast<std::ptrdiff_t>(num_classes), std::int64_t{0});
    if (sum <= most) continue;
    most = sum;
    peak = i;
  }
  return peak;
}

}  // namespace

std::string byte_text(std::int64_t bytes) {
  constexpr std::array<const char*, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.{}f} {}", value, value < 100 ? 2 : 1, units.at(unit));
}

std::string facts_html(const std::vector<HtmlFact>& facts) {
  std::string html;
  for (const HtmlFact& fact : facts) {
    html += fmt::format("<div><dt>{}</dt><dd>{}{}{}</dd></div>\n", xml_escaped(fact.name), xml_escaped(fact.value),
                        fact.detail.empty() ? "" : " ", xml_escaped(fact.detail));
  }
  return html;
}

std::string figures_html(const std::vector<HtmlFact>& figures) {
  std::string html;
  for (const HtmlFact& fact : figures) {
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd><dd class=\"detail\">{}</dd></div>\n", xml_escaped(fact.name),
                        xml_escaped(fact.value), xml_escaped(fact.detail));
  }
  return html;
}

std::string ranks_table(const Program& program, const SimReport& report, const HtmlPage& page,
                        const HtmlLimits& limits) {
  std::vector<std::string> columns{"rank"};
  for (const HtmlSplit::Part& part : page.split.parts)
    columns.push_back(part.name + ", ms");
  const bool has_memory = !page.memory.ranks.empty();
  if (has_memory) {
    columns.emplace_back("peak bytes");
    columns.emplace_back("at, ms");
    for (const std::string& name : page.memory.classes)
      columns.push_back(name + " then");
    columns.emplace_back("most activation chunks");
  }
  const std::size_t num_parts = page.split.parts.size();
  const std::size_t num_classes = page.memory.classes.size();
  const std::size_t num_rows = std::min(program.ranks.size(), limits.table_rows);
  std::string html = open_table(
      num_rows == program.ranks.size()
          ? "Where each rank's step went, and what is resident at its peak"
          : fmt::format("The first {} of {} ranks: where each one's step went, and what is resident at its peak",
                        num_rows, program.ranks.size()),
      columns);
  for (std::size_t r = 0; r < num_rows; ++r) {
    html += fmt::format("<tr><th scope=\"row\">{}</th>", r);
    for (std::size_t p = 0; p < num_parts; ++p)
      html += milliseconds(page.split.times[r * num_parts + p]);
    if (has_memory) {
      const HtmlMemorySeries& series = page.memory.ranks[r];
      const std::size_t peak = peak_of(series, num_classes);
      std::int64_t sum = 0;
      std::string cells;
      for (std::size_t c = 0; c < num_classes; ++c) {
        const std::int64_t bytes = series.times.empty() ? 0 : series.bytes[peak * num_classes + c];
        sum += bytes;
        cells += fmt::format("<td>{}</td>", bytes);
      }
      html += fmt::format("<td>{}</td>", sum) + milliseconds(series.times.empty() ? SimTime(0) : series.times[peak]) +
              cells + fmt::format("<td>{}</td>", report.ranks[r].memory.each.activation_chunks);
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

std::string hops_table(const SimReport& report, const UnitBytes& bytes, int microbatches, const HtmlLimits& limits) {
  std::vector<const HopReport*> hops;
  for (const HopReport& hop : report.hops)
    hops.push_back(&hop);
  std::string caption = "Messages from chunk to chunk in one step";
  if (hops.size() > limits.table_rows) {
    caption = fmt::format("The {} of {} pairs of chunks with the most bytes in one step", limits.table_rows,
                          report.hops.size());
    std::stable_sort(hops.begin(), hops.end(),
                     [](const HopReport* a, const HopReport* b) { return a->bytes_per_step > b->bytes_per_step; });
    hops.resize(limits.table_rows);
  }
  std::string html = open_table(
      caption, {"from chunk to chunk", "from rank", "to rank", "units forward per microbatch", "units backward",
                "bytes forward", "bytes backward", "queued, ms (sum)", "on the way, ms (sum)"});
  for (const HopReport* hop : hops) {
    html += fmt::format(
        "<tr><th scope=\"row\">{} to {}</th><td>{}</td><td>{}</td><td>{:g}</td><td>{:g}</td><td>{:.0f}</td>"
        "<td>{:.0f}</td>",
        hop->from_chunk.value, hop->to_chunk.value, hop->from_rank.value, hop->to_rank.value, hop->forward_units,
        hop->backward_units, hop->forward_units * microbatches * static_cast<double>(bytes.value),
        hop->backward_units * microbatches * static_cast<double>(bytes.gradient_wire));
    html += milliseconds(hop->queued) + milliseconds(hop->on_wire) + "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

std::string loads_table(const HtmlPage& page, SimTime step, const HtmlLimits& limits) {
  const std::size_t num_rows = std::min(page.loads.size(), limits.table_rows);
  std::string html = open_table(num_rows == page.loads.size()
                                    ? "What went through each interface in one step"
                                    : fmt::format("The first {} of {} interfaces", num_rows, page.loads.size()),
                                {"interface", "messages", "bytes", "in use, ms", "of the step"});
  for (std::size_t i = 0; i < num_rows; ++i) {
    const HtmlLoad& load = page.loads[i];
    html += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td>", xml_escaped(load.name),
                        load.num_messages, load.bytes);
    html += milliseconds(load.busy) + share_cell(load.busy, step) + "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

std::string path_table(const HtmlPage& page, SimTime step, const HtmlLimits& limits) {
  const std::vector<PathShare> shares = path_shares(page.path);
  const std::size_t num_rows = std::min(shares.size(), limits.table_rows);
  std::string html =
      open_table(num_rows == shares.size()
                     ? "The longest chain of computations and messages: what it consists of adds up to the step"
                     : fmt::format("The longest {} of {} parts of the longest chain of computations and messages",
                                   num_rows, shares.size()),
                 {"on the longest chain", "times", "ms", "of the step"});
  for (std::size_t i = 0; i < num_rows; ++i) {
    html += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td>", name_of(shares[i]), shares[i].count);
    html += milliseconds(shares[i].time) + share_cell(shares[i].time, step) + "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

std::string curve_table(const HtmlCurve& curve) {
  if (curve.x.empty()) return {};
  std::vector<std::string> columns{curve.x_name};
  for (const HtmlCurve::Line& line : curve.lines)
    columns.push_back(line.name);
  std::string html = open_table(curve.y_name, columns);
  for (std::size_t i = 0; i < curve.x.size(); ++i) {
    html += fmt::format("<tr><th scope=\"row\">{:g}{}</th>", curve.x[i], curve.x[i] == curve.here ? " (here)" : "");
    for (const HtmlCurve::Line& line : curve.lines)
      html += std::isnan(line.y[i]) ? "<td>-</td>" : fmt::format("<td>{:+.3f} %</td>", line.y[i] * 100);
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

}  // namespace plumb

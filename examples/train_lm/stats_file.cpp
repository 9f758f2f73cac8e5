// SPDX-License-Identifier: Apache-2.0
#include "train_lm/stats_file.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "exit.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/svg_heat_map.hpp"

namespace plumb::lm {

namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson optional_number(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

std::string line_of(std::int64_t step, const DepthReport& report) {
  OrderedJson line;
  line["step"] = step;
  line["sublayer"] = report.sublayer;
  line["part"] = report.is_head ? "head" : report.sublayer % 2 == 0 ? "attention" : "mlp";
  line["entropy"] = report.entropy;
  line["occupancy"] = report.occupancy;
  line["partial_occupancy"] = optional_number(report.partial);
  line["output_rms"] = report.output_rms;
  line["query_gradient_norm"] = report.query_gradient_norm;
  line["output_gradient_norm"] = optional_number(report.output_gradient_norm);
  return line.dump();
}

HeatMap heat_map(const StepEvent& event) {
  std::size_t num_blocks = 0;
  for (const DepthReport& report : event.depth) {
    num_blocks = std::max(num_blocks, report.occupancy.size());
  }
  HeatMap map;
  map.title = fmt::format("What each sublayer reads, step {}", event.step);
  map.subtitle = "mean weight of each closed block and of the open partial sum, over all tokens of the step";
  map.row_title = "sublayer";
  map.column_title = "source";
  for (std::size_t n = 0; n < num_blocks; ++n) {
    map.columns.push_back(fmt::format("b{}", n));
  }
  map.columns.push_back("partial");
  for (const DepthReport& report : event.depth) {
    map.rows.push_back(report.is_head ? "head" : fmt::to_string(report.sublayer));
    for (std::size_t n = 0; n < num_blocks; ++n) {
      map.cells.push_back(n < report.occupancy.size() ? std::optional(report.occupancy[n]) : std::nullopt);
    }
    map.cells.push_back(report.partial);
  }
  return map;
}

}  // namespace

std::string picture_beside(const std::string& stats_file) {
  constexpr std::string_view suffix = ".jsonl";
  const bool has_suffix = stats_file.ends_with(suffix) && stats_file.size() > suffix.size();
  return (has_suffix ? stats_file.substr(0, stats_file.size() - suffix.size()) : stats_file) + ".svg";
}

StatsFile::StatsFile(const std::string& file) : file_(file) {
  if (file.ends_with(".svg")) {
    throw InputError(fmt::format(
        "--stats {}: holds lines of JSON, the picture is written beside it as .svg; nearest legal value: {}.jsonl",
        file, file.substr(0, file.size() - std::string_view(".svg").size())));
  }
  out_.open(file);
  if (!out_) {
    throw cli::EnvironmentError(fmt::format("--stats {}: cannot be opened for writing", file));
  }
}

void StatsFile::write(const StepEvent& event) {
  if (event.depth.empty()) {
    return;
  }
  for (const DepthReport& report : event.depth) {
    out_ << line_of(event.step, report) << '\n';
  }
  if (!out_.flush()) {
    throw cli::EnvironmentError(fmt::format("--stats {}: cannot be written to", file_));
  }
  if (event.done == event.of) {
    draw(event);
  }
}

void StatsFile::draw(const StepEvent& event) const {
  const std::string name = picture_beside(file_);
  std::ofstream picture(name);
  picture << svg_heat_map(heat_map(event));
  if (!picture.flush()) {
    throw cli::EnvironmentError(fmt::format("--stats {}: the picture {} cannot be written", file_, name));
  }
}

}  // namespace plumb::lm

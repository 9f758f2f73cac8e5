// SPDX-License-Identifier: Apache-2.0
#include "train_lm/depth_report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "train_lm/gather.hpp"

namespace plumb::lm {

namespace {

template <class T>
double norm_of(const View& view) {
  double sum = 0;
  for (std::int64_t i = 0; i < view.num_elements(); ++i) {
    const auto value = static_cast<double>(elements<T>(view)[i]);
    sum += value * value;
  }
  return std::sqrt(sum);
}

double norm(const View& view) { return view.storage == Storage::fp64 ? norm_of<double>(view) : norm_of<float>(view); }

// On the way between ranks a report is a row of doubles, its length first; NaN where there is no value.
void put(std::string& bytes, const DepthReport& report) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> row = {static_cast<double>(report.occupancy.size()),
                             static_cast<double>(report.sublayer),
                             report.is_head ? 1.0 : 0.0,
                             report.entropy,
                             report.partial.value_or(none),
                             report.output_rms,
                             report.query_gradient_norm,
                             report.output_gradient_norm.value_or(none)};
  row.insert(row.end(), report.occupancy.begin(), report.occupancy.end());
  bytes.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(double));
}

DepthReport take(std::string_view& bytes) {
  const auto number = [&bytes] {
    double value = 0;
    std::memcpy(&value, bytes.data(), sizeof(value));
    bytes.remove_prefix(sizeof(value));
    return value;
  };
  const auto number_or_none = [&number] {
    const double value = number();
    return std::isnan(value) ? std::nullopt : std::optional(value);
  };
  DepthReport report;
  report.occupancy.resize(static_cast<std::size_t>(number()));
  report.sublayer = static_cast<int>(number());
  report.is_head = number() != 0;
  report.entropy = number();
  report.partial = number_or_none();
  report.output_rms = number();
  report.query_gradient_norm = number();
  report.output_gradient_norm = number_or_none();
  for (double& weight : report.occupancy) {
    weight = number();
  }
  return report;
}

}  // namespace

std::vector<DepthReport> reports_of(const DepthStatistics& statistics, const DepthParameters& parameters) {
  const ChunkRange& chunk = parameters.chunk();
  const auto width = static_cast<double>(parameters.config().width);
  std::vector<DepthReport> reports;
  for (const AggregateSums& sums : statistics.rows()) {
    const auto place = static_cast<int>(reports.size());
    DepthReport report;
    report.sublayer = chunk.first + place;
    report.is_head = place == chunk.count;
    const auto tokens = static_cast<double>(sums.num_tokens);
    report.entropy = sums.entropy / tokens;
    for (const double weight : sums.block_weights) {
      report.occupancy.push_back(weight / tokens);
    }
    if (sums.reads_partial) {
      report.partial = sums.partial_weight / tokens;
    }
    report.output_rms = std::sqrt(sums.output_squares / (tokens * width));
    const AggregateParameters own = report.is_head ? parameters.head() : parameters.sublayer(place);
    report.query_gradient_norm = norm(own.query_gradient);
    if (!report.is_head) {
      report.output_gradient_norm = std::sqrt(sums.output_gradient_squares);
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

std::vector<DepthReport> gather_reports(ControlPlane* control, const std::vector<DepthReport>& mine) {
  std::string bytes;
  for (const DepthReport& report : mine) {
    put(bytes, report);
  }
  std::vector<DepthReport> all;
  for (const std::string& text : gather(control, std::move(bytes))) {
    for (std::string_view rest = text; !rest.empty();) {
      all.push_back(take(rest));
    }
  }
  std::sort(all.begin(), all.end(), [](const DepthReport& a, const DepthReport& b) { return a.sublayer < b.sublayer; });
  return all;
}

}  // namespace plumb::lm

// SPDX-License-Identifier: Apache-2.0
#include "warnings.hpp"

#include <cstdio>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "output.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/sizing/cluster_file.hpp"
#include "plumb/sizing/left_out.hpp"

namespace plumb::cli {
namespace {

std::vector<std::string> left_out(const Options& options) {
  std::vector<std::string> parts;
  for (const LeftOut& part : left_out_of(*options.model))
    parts.push_back(to_string(part));
  return parts;
}

}  // namespace

bool costs_model(const Options& options) {
  if (!options.model) return false;
  return options.subcommand == "size" || (options.cluster && !options.profile) || options.costs == "model";
}

std::vector<std::string> warnings_of(const Options& options) {
  std::vector<std::string> warnings;
  if (options.cluster) warnings = load_cluster(*options.cluster).warnings;
  if (!costs_model(options)) return warnings;
  const std::vector<std::string> parts = left_out(options);
  if (!parts.empty()) {
    warnings.push_back(fmt::format("{}: left out of all times and bytes: {}", *options.model, fmt::join(parts, ", ")));
  }
  return warnings;
}

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings)
    fmt::print(stderr, "warning: {}\n", one_line(warning));
}

std::string left_out_json(const Options& options) {
  std::string list;
  for (const std::string& part : left_out(options))
    list += (list.empty() ? "" : ",") + json_quoted(part);
  return "[" + list + "]";
}

}  // namespace plumb::cli

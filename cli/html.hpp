// SPDX-License-Identifier: Apache-2.0
//
// html.hpp (private): `plumb sim --html FILE`, the page of one simulated step.
#pragma once

#include <optional>

#include "options.hpp"
#include "plumb/cache/program.hpp"
#include "plumb/schedule/schedule.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/memory_classes.hpp"
#include "plumb/simulator/network_model.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/timeline.hpp"
#include "resolve.hpp"

namespace plumb::cli {

// Throws InputError where --html goes with another flag that shows something else, or names a file of another flag.
void require_html_fits(const Options& options);

// What a run of `plumb sim` has got together when it has simulated.
struct SimulatedStep {
  const Options& options;
  const Depth& depth;
  const Schedule& schedule;
  const Program& program;
  const CostModel& costs;
  const std::optional<NetworkModel>& network;
  const Timeline& timeline;
  const SimReport& report;
  const DeviceBytes* device = nullptr;  // where the memory of a device is known
};

// Writes --html. Simulates the policies at other rates of the links for the curve, as many as the size allows.
void write_html_page(const SimulatedStep& step);

}  // namespace plumb::cli

// SPDX-License-Identifier: Apache-2.0
//
// compare.hpp: what each routing policy costs over the ordinary residual stream, under the same schedule and the same
// costs.
//
// Each policy is lowered for the costs it is simulated with. The baseline sends one hidden state per hop and runs the
// same computations in the same order, so the difference is what depth attention's traffic adds to the step, nothing
// else.
#pragma once

#include <string>
#include <vector>

#include "plumb/cache/lower.hpp"
#include "plumb/simulator/memory_classes.hpp"
#include "plumb/simulator/network_model.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"

namespace plumb {

// Whether a rank's messages go one after the other, in or out, by which programs are planned: on streams where one
// message or group holds all of them.
Duplex planned_duplex(const SimOptions& options, const NetworkModel* network);

struct PolicyRow {
  Policy policy = Policy::standard;
  double overhead_over_standard = 0;  // step / standard step - 1; 0.002 = 0.2 %
  SimReport report;
  ClassPeak device_peak;  // of the rank with the most, where it was asked for
};

// Rows: standard, naive, relay, direct, cached. `depth` must have depth attention (InputError), its cuts serve the
// baseline too. With a network they run on that (simulate_network) and not by `options`; `device` asks for device_peak.
std::vector<PolicyRow> compare_policies(const Schedule& schedule, const DepthMap& depth, const CostModel& costs,
                                        const SimOptions& options = {}, int post_ahead = 1,
                                        const NetworkModel* network = nullptr, const DeviceBytes* device = nullptr);

// [{"cache": "naive", "step_us": .., "overhead_over_standard": .., "bubble_over_step": ..,
// "forward_units_per_microbatch": ..,
//   "bytes_per_step": .., "exposed_comm_us": .., "peak_resident_units": .., "peak_gradient_units": .., "peak_bytes":
//   ..},
//   ...]; peaks of the worst rank, exposed_comm_us the mean; "device_peak_bytes" where it was asked for.
std::string to_json(const std::vector<PolicyRow>& rows);

}  // namespace plumb

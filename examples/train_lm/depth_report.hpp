// SPDX-License-Identifier: Apache-2.0
//
// depth_report.hpp: diagnostics of one step's depth attention, a few numbers per sublayer, from all ranks together.
//
// Means are over the tokens of all microbatches. Entropies are in nats. Norms belong to the gradient of the step's loss
// and are root sums of squares. Plain values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plumb/comm/control.hpp"
#include "plumb/kernels/depth_parameters.hpp"
#include "plumb/kernels/depth_statistics.hpp"

namespace plumb::lm {

struct DepthReport {
  int sublayer = 0;  // over the model, from 0; the number of sublayers for the head's aggregate
  bool is_head = false;
  double entropy = 0;
  std::vector<double> occupancy;               // [block]: mean weight of b_0, b_1, ..
  std::optional<double> partial;               // mean weight of the open partial, where the sublayer reads one
  double output_rms = 0;                       // of f; the head's: of what it reads
  double query_gradient_norm = 0;              // |dL/dw|
  std::optional<double> output_gradient_norm;  // |dL/df| over all tokens; none for the head
};

// One per aggregate of a chunk. REQUIRES: both were made for it, and a training step has run.
std::vector<DepthReport> reports_of(const DepthStatistics& statistics, const DepthParameters& parameters);

// Collective. Rank 0 gets the reports of all ranks, sublayers ascending; the others nothing.
std::vector<DepthReport> gather_reports(ControlPlane* control, const std::vector<DepthReport>& mine);

}  // namespace plumb::lm

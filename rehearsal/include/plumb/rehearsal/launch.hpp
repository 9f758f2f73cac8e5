// SPDX-License-Identifier: Apache-2.0
//
// launch.hpp: brings all ranks of a rehearsal to life, as threads of this process or on a job that already runs.
//
// Collective parts only: what a rank does is rehearse.hpp's business. Ownership: the plan outlives the call.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "plumb/rehearsal/rehearse.hpp"

namespace plumb {

struct LaunchOptions {
  bool emulate_links = true;  // else messages take what the transport takes
  std::function<void(RankId, Play&)> prepare = nullptr;
  // Rank 0's, see RankPlace::on_step.
  std::function<void(int, std::chrono::nanoseconds)> on_step = nullptr;
  // A transport in front of a rank's own, below the emulated links; for tests.
  std::function<std::unique_ptr<Transport>(Transport&)> in_front = nullptr;
};

// Outcomes by rank. Rethrows the first failure that is not the echo of another rank's.
std::vector<RankOutcome> rehearse_on_threads(const RehearsalPlan& plan, const LaunchOptions& options = {});

// For a rank of a job of processes: collective. Every rank gets all outcomes.
std::vector<RankOutcome> rehearse_on_job(const RehearsalPlan& plan, RankId rank, Transport& transport,
                                         ControlPlane& control, const LaunchOptions& options = {});

}  // namespace plumb

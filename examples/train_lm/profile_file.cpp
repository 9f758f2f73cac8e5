// SPDX-License-Identifier: Apache-2.0
#include "train_lm/profile_file.hpp"

#include <algorithm>
#include <ostream>
#include <span>
#include <utility>

#include "output.hpp"
#include "plumb/sizing/profile.hpp"

namespace plumb::lm {

ProfileFile::ProfileFile(std::string file, const TrainPlan& plan) : file_(std::move(file)), plan_(plan) {
  for (const RankProgram& rank : plan.chosen().ranks) {
    least_.ranks.push_back(
        {std::vector<ComputeTimes>(rank.compute.size(), ComputeTimes{SimTime(0), SimTime::max(), SimTime(0)}), {}});
  }
}

void ProfileFile::add(const StepEvent& event) {
  for (std::size_t rank = 0; rank < event.records.size(); ++rank) {
    const StepRecord& record = event.records[rank];
    for (std::size_t i = 0; i < record.compute.size(); ++i) {
      SimTime& least = least_.ranks[rank].compute[i].end;
      least = std::min<SimTime>(least, std::chrono::nanoseconds(record.compute[i].end_ns - record.compute[i].start_ns));
    }
  }
  num_steps_ += event.records.empty() ? 0 : 1;
  if (event.done != event.of || num_steps_ == 0) return;
  Profile profile = make_profile(plan_.chosen(), plan_.cuts, std::span(&least_, 1), "plumb train");
  profile.steps = num_steps_;
  cli::write_file(file_, [&](std::ostream& out) { out << to_json(profile); });
}

}  // namespace plumb::lm

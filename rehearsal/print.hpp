// SPDX-License-Identifier: Apache-2.0
//
// print.hpp (private): the table and the JSON of a rehearsal.
#pragma once

#include <string>

#include "plumb/rehearsal/report.hpp"
#include "setup.hpp"

namespace plumb::rehearsal {

// Of the measured steps; over all processes of the job.
struct Usage {
  double wall_s = 0;
  double cpu_s = 0;
  int cores = 0;
  double cores_used() const { return wall_s > 0 ? cpu_s / wall_s : 0; }
};

std::string report_table(const Setup& setup, const RehearsalReport& report, const Usage& usage);
std::string report_json(const Setup& setup, const RehearsalReport& report, const Usage& usage);

// Why the answer is "no"; empty if it is "yes".
std::string verdict(const RehearsalReport& report);

}  // namespace plumb::rehearsal

// SPDX-License-Identifier: Apache-2.0
//
// trace_rules.hpp (tests): does a Chrome trace keep every rule without which Perfetto drops, moves or misreads events?
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plumb::test {

struct TraceFindings {
  std::vector<std::string> faults;  // empty: every rule is kept
  int num_slices = 0;
  int num_flows = 0;
  int num_counters = 0;
};

TraceFindings check_trace(std::string_view text);

}  // namespace plumb::test

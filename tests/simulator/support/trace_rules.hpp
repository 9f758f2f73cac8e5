// SPDX-License-Identifier: Apache-2.0
//
// trace_rules.hpp (tests): does a Chrome trace keep every rule without which Perfetto drops, moves or misreads events?
#pragma once

#include <cstddef>
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

// Browsers give up near 200 MB.
TraceFindings check_trace(std::string_view text, std::size_t max_bytes = 200'000'000);

}  // namespace plumb::test

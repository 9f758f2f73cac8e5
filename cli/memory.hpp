// SPDX-License-Identifier: Apache-2.0
//
// memory.hpp (private): refuses at once what would run out of memory after minutes.
//
// What a table or a program takes is estimated from its size (measured on this code, within a third); what there is
// comes from the system: free memory, the limit of the control group, `ulimit -v`. A problem that needs more is
// refused with both figures.
#pragma once

#include <cstdint>
#include <string_view>

#include "options.hpp"
#include "plumb/cache/policy.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/layout.hpp"

namespace plumb::cli {

// What a subcommand makes of a schedule.
enum class Product : std::uint8_t {
  routing,     // who sends what to whom, for any microbatch
  table,       // the order alone
  simulation,  // one program and its timeline
  text,        // two programs
  json         // a program and its text
};

// Bytes that `product` takes for `layout` with the backward split or not.
double bytes_needed(Product product, const Layout& layout, const DepthMap& depth, Policy policy, bool split);

// Whether --schedule may name an order with I and W.
bool splits_backward(const Options& options);

// Throws OutOfMemory, "P=.. V=.. M=..: needs about 40.2 GiB, 21.0 GiB are free".
void require_memory(double bytes, std::string_view what);

// "P=8 V=2 M=16".
std::string size_text(const Layout& layout);

}  // namespace plumb::cli

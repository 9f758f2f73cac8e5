// SPDX-License-Identifier: Apache-2.0
//
// setup.hpp (private): from the flags of `plumb rehearse` to a plan, and everything that is refused on the way.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "options.hpp"
#include "plumb/rehearsal/rehearse.hpp"
#include "plumb/simulator/simulate.hpp"

namespace plumb::rehearsal {

// What is taken away from the executor on purpose, to see what it was worth.
enum class Impairment : std::uint8_t {
  none,
  lanes,             // urgent and bulk messages share one queue per edge, in the order of the program
  priority,          // whatever is ready first takes the link first
  overlap,           // communication waits for the computation of its rank
  single_stream,     // a rank sends or receives one message at a time, in the order of a program planned for that
  unplanned_stream,  // the same with a program that is planned for lanes
};

struct ImpairmentName {
  Impairment impairment;
  const char* name;
  const char* sentence;
};
// In the order of the enumeration.
std::span<const ImpairmentName> all_impairments();
const ImpairmentName& name_of(Impairment impairment);

struct Setup {
  RehearsalPlan plan;
  SimOptions sim;
  Impairment impairment = Impairment::none;
  bool emulate_links = true;
  std::string depth;     // in words
  std::string schedule;  // name
};

// Throws InputError. `available_bytes`: memory of this machine that may be used.
Setup make_setup(const cli::Options& options, std::int64_t available_bytes);

// Of /proc/meminfo, and the limit of the control group if it is less.
std::int64_t available_memory_bytes();

// Both lanes in one queue per edge: every message is urgent, in the program's order.
Program with_one_lane(Program program);

}  // namespace plumb::rehearsal

// SPDX-License-Identifier: Apache-2.0
// A user of `simulator`: one step of 1F1B takes (M + P - 1)(F + B) when messages take no time.
#include <plumb/cache/lower.hpp>
#include <plumb/schedule/generators.hpp>
#include <plumb/simulator/simulate.hpp>

int main() {
  const plumb::Layout layout(2, 1, 2);
  const plumb::DepthMap depth(4, 2, plumb::DepthMap::even_cuts(4, 4, 2));
  const plumb::Program program = plumb::lower(plumb::one_f_one_b(layout), depth, plumb::Policy::cached);
  const plumb::SimTime unit{1000};
  const plumb::UnitBytes bytes = plumb::unit_bytes(1, 1, 4, plumb::GradientWire::fp32);
  const plumb::CostModel costs(plumb::action_times(unit, unit, unit),
                               plumb::link_from_unit_time(plumb::SimTime{0}, plumb::SimTime{0}, bytes), bytes);
  return plumb::simulate(program, costs).step == 3 * (unit + 2 * unit) ? 0 : 1;
}

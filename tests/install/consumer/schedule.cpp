// SPDX-License-Identifier: Apache-2.0
// A user of `schedule` alone: the interleaved order of 4 ranks x 2 virtual stages.
#include <plumb/schedule/generators.hpp>

int main() {
  const plumb::Layout layout(4, 2, 8);
  const plumb::Schedule schedule = plumb::interleaved(layout, plumb::default_group(layout));
  return schedule.num_actions() == 2U * 8U * 8U ? 0 : 1;
}

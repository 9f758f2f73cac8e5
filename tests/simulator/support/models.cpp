// SPDX-License-Identifier: Apache-2.0
#include "models.hpp"

namespace plumb::test {

CostModel random_model(Dice& dice, int num_chunks) {
  const auto time = [&] { return SimTime(dice.roll(0, 5) == 0 ? 0 : dice.roll(1, 2000)); };
  std::vector<ActionTimes> times;
  for (int chunk = 0; chunk < num_chunks; ++chunk) {
    times.push_back(action_times(time(), time(), time()));
  }
  if (dice.roll(0, 2) == 0) times.resize(1);
  Link link;
  if (dice.roll(0, 1) == 0) link.latency = SimTime(dice.roll(1, 700));
  if (dice.roll(0, 3) != 0) link.value_unit = SimTime(dice.roll(1, 300));
  if (dice.roll(0, 3) != 0) link.gradient_unit = SimTime(dice.roll(1, 300));
  return CostModel(std::move(times), link, storage_bytes);
}

}  // namespace plumb::test

// SPDX-License-Identifier: Apache-2.0
#include "layouts.hpp"

#include <algorithm>

namespace plumb::test {

std::vector<int> random_cuts(Dice& dice, int sublayers, int chunks) {
  std::vector<int> cuts;
  for (int i = 0; i + 1 < chunks; ++i) {
    cuts.push_back(dice.roll(0, sublayers));
  }
  cuts.push_back(sublayers);
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

DepthMap random_depth(Dice& dice, int chunks, int max_sublayers) {
  const int sublayers = dice.roll(1, max_sublayers);
  const int block = dice.roll(0, 3) == 0 ? 1 : dice.roll(1, sublayers);
  const bool even = dice.roll(0, 2) == 0;
  return DepthMap(sublayers, block,
                  even ? DepthMap::even_cuts(sublayers, sublayers, chunks) : random_cuts(dice, sublayers, chunks));
}

}  // namespace plumb::test

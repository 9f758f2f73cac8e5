// SPDX-License-Identifier: Apache-2.0
// A user of `cache` alone: the traffic of 93 decoder layers, 12 per block, on 8 ranks x 4 virtual stages.
#include <plumb/cache/volume.hpp>

int main() {
  const plumb::Layout layout(8, 4, 16);
  const plumb::DepthMap depth(186, 24, plumb::DepthMap::even_cuts(186, 93, 32));
  const plumb::Routing routing = plumb::make_routing(layout, depth, plumb::Policy::cached);
  return plumb::count_volume(routing, layout).units == 77 ? 0 : 1;
}

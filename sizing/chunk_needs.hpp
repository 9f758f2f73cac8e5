// SPDX-License-Identifier: Apache-2.0
//
// chunk_needs.hpp (private): of one microbatch, what each chunk waits for at the least and what it keeps on its rank.
//
// Taken from the transfers of its routing: a forward cannot begin before those into its chunk have arrived, a backward
// not before the gradients of what its chunk made have. A transfer takes its latency and its units' time, as if the
// network were free and every receive posted. Holdings are in memory from the forward of the first chunk that uses them
// to the backward of that chunk, their gradients from the backward of the last one. So it is less than any program of
// that routing needs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumb/cache/routing.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/simulator/cost_model.hpp"

namespace plumb {

// Bytes of one device that a chunk and one microbatch keep.
struct ChunkHoldings {
  double activation = 0;  // from F to B or W
  double values = 0;      // from F to B or I: blocks that no chunk before on the rank uses, the partial it begins with
  double gradients_opened = 0;  // at B or I, of blocks that no later chunk on the rank uses
  double gradients_closed = 0;  // of those that no chunk before uses, at the end of B or I
  double passing_forward = 0;   // while F runs: the partial it leaves
  double passing_backward = 0;  // while B or I runs: the gradients of both partials
};

class ChunkNeeds {
 public:
  // A chunk's end, from which on `later` must pass.
  struct Need {
    std::uint16_t chunk;
    SimTime later;
  };

  // `times` and `activations` (of one device) per chunk; `tp` devices share the bytes of a unit.
  ChunkNeeds(const Layout& layout, const DepthMap& depth, const Routing& routing, const LinkTable& links,
             const UnitBytes& bytes, int tp, const std::vector<ActionTimes>& times,
             const std::vector<double>& activations);

  // Forwards that F of the chunk waits for; backwards (B or I) that B or I waits for.
  std::span<const Need> forward(std::size_t chunk) const { return forward_[chunk]; }
  std::span<const Need> backward(std::size_t chunk) const { return backward_[chunk]; }
  const ChunkHoldings& holdings(std::size_t chunk) const { return holdings_[chunk]; }

 private:
  std::vector<std::vector<Need>> forward_;
  std::vector<std::vector<Need>> backward_;
  std::vector<ChunkHoldings> holdings_;
};

}  // namespace plumb

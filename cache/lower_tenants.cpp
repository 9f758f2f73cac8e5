// SPDX-License-Identifier: Apache-2.0
#include "lower_tenants.hpp"

#include <algorithm>

namespace plumb {

SlotClass slot_class(Tenancy tenancy) { return tenancy <= Tenancy::partial ? SlotClass::value : SlotClass::gradient; }

std::vector<ChunkShape> chunk_shapes(const Program& program) {
  std::vector<ChunkShape> shapes(static_cast<std::size_t>(program.layout.num_chunks()));
  const DepthMap& depth = program.depth;
  const std::vector<Holding>& holdings = program.routing.holdings;
  for (ChunkId chunk{0}; chunk.index() < shapes.size(); chunk = chunk.next()) {
    ChunkShape& shape = shapes[chunk.index()];
    shape.partial_in = chunk.value > 0 && depth.partial_after(chunk.previous());
    shape.partial_out = chunk.next().index() < shapes.size() && depth.partial_after(chunk);
    for (BlockId block = depth.first_closed(chunk); block < depth.end_closed(chunk); block = block.next()) {
      shape.closed.push_back(program.routing.root[block.index()]);
    }
  }
  for (std::size_t h = 0; h < holdings.size(); ++h) {
    for (const ChunkId reader : holdings[h].readers) {
      shapes[reader.index()].sources.push_back(HoldingId(h));
    }
  }
  for (ChunkShape& shape : shapes) {
    std::sort(shape.sources.begin(), shape.sources.end(),
              [&](HoldingId a, HoldingId b) { return holdings[a.index()].block < holdings[b.index()].block; });
  }
  return shapes;
}

RankTenants::RankTenants(const Program& program, const std::vector<ChunkShape>& shapes, RankId rank)
    : program_(program),
      shapes_(shapes),
      row_of_holding_(program.routing.holdings.size(), -1),
      row_of_cut_(static_cast<std::size_t>(program.layout.num_chunks()), -1) {
  const std::vector<Holding>& holdings = program.routing.holdings;
  for (std::size_t h = 0; h < holdings.size(); ++h) {
    if (holdings[h].rank == rank) {
      number(HoldingId(h));
      for (const HoldingId child : holdings[h].children) {
        number(child);
      }
    }
  }
  for (const ChunkId chunk : program.layout.chunks_on(rank)) {
    number_cut(chunk);
    if (chunk.value > 0) {
      number_cut(chunk.previous());
    }
  }
}

void RankTenants::number(HoldingId id) {
  if (row_of_holding_[id.index()] < 0) {
    row_of_holding_[id.index()] = static_cast<std::int32_t>(holding_of_row_.size());
    holding_of_row_.push_back(id);
  }
}

void RankTenants::number_cut(ChunkId before) {
  if (row_of_cut_[before.index()] < 0) {
    row_of_cut_[before.index()] = static_cast<std::int32_t>(holding_of_row_.size());
    holding_of_row_.push_back(HoldingId{-1});
  }
}

}  // namespace plumb

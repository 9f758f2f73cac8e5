// SPDX-License-Identifier: Apache-2.0
//
// ids.hpp: the integers of a pipeline, one type each, so that a chunk is never taken for a rank.
//
// All count from 0. `value` is public: an id is plain data and its index() goes straight into a vector. Block 0 is the
// token embedding b_0; blocks 1..N are sums of sublayer outputs.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace plumb {

template <class Tag>
struct Id {
  std::int32_t value = 0;

  constexpr Id() = default;
  constexpr explicit Id(std::int32_t v) : value(v) {}
  constexpr explicit Id(std::size_t v) : value(static_cast<std::int32_t>(v)) {}

  constexpr std::size_t index() const { return static_cast<std::size_t>(value); }
  constexpr Id next() const { return Id(value + 1); }
  constexpr Id previous() const { return Id(value - 1); }
  friend constexpr auto operator<=>(Id, Id) = default;
};

using RankId = Id<struct RankTag>;                // a pipeline rank, 0..P-1
using ChunkId = Id<struct ChunkTag>;              // a chunk of consecutive sublayers, 0..P*V-1 in depth order
using VirtualStage = Id<struct VirtualStageTag>;  // which of a rank's chunks, 0..V-1
using Microbatch = Id<struct MicrobatchTag>;      // 0..M-1 within one step
using BlockId = Id<struct BlockTag>;              // 0 = embedding, 1..N

}  // namespace plumb

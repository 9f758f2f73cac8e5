// SPDX-License-Identifier: Apache-2.0
//
// comms_tables.hpp (private): what the conversions and the check of schedules with communication share.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/schedule/comms_csv.hpp"

namespace plumb {

// A dense table over (chunk, microbatch).
template <class Value>
class PerCompute {
 public:
  PerCompute(const Layout& layout, Value initial)
      : microbatches_(static_cast<std::size_t>(layout.microbatches())),
        values_(static_cast<std::size_t>(layout.num_chunks()) * microbatches_, initial) {}
  Value& at(ChunkId chunk, Microbatch m) { return values_[chunk.index() * microbatches_ + m.index()]; }
  const Value& at(ChunkId chunk, Microbatch m) const { return values_[chunk.index() * microbatches_ + m.index()]; }

 private:
  std::size_t microbatches_;
  std::vector<Value> values_;
};

inline bool is_send(CommOp op) { return op == CommOp::send_forward || op == CommOp::send_backward; }
inline bool is_forward(CommOp op) { return op == CommOp::send_forward || op == CommOp::receive_forward; }

// What a send or receive concerns: the hop between `before` and the next chunk.
struct Hop {
  ChunkId before;
  Direction direction = Direction::forward;
};

inline Hop hop_of(const CommAction& action) {
  const bool out = action.op == CommOp::send_forward || action.op == CommOp::receive_backward;
  return {out ? action.chunk : action.chunk.previous(),
          is_forward(action.op) ? Direction::forward : Direction::backward};
}

// The other end of a send or receive.
inline CommAction partner_of(const CommAction& action) {
  switch (action.op) {
    case CommOp::send_forward:
      return {CommOp::receive_forward, action.chunk.next(), action.microbatch};
    case CommOp::receive_forward:
      return {CommOp::send_forward, action.chunk.previous(), action.microbatch};
    case CommOp::send_backward:
      return {CommOp::receive_backward, action.chunk.previous(), action.microbatch};
    case CommOp::receive_backward:
      return {CommOp::send_backward, action.chunk.next(), action.microbatch};
    default:
      return action;
  }
}

// True if `before` has a next chunk, on another rank.
inline bool crosses(const Layout& layout, ChunkId before) {
  return before.value >= 0 && before.value + 1 < layout.num_chunks() &&
         layout.rank_of(before) != layout.rank_of(before.next());
}

template <class Visit>
void for_each_compute(const Action& action, Visit&& visit) {
  visit(action.first);
  if (action.second) visit(*action.second);
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// longest_path_builder.hpp: the graph of a LongestPath, found by running the program without clocks.
//
// A node is added when all that it waits for has been, so that their numbers are an order in which each edge comes from
// before. A computation is a node; a message one or several, by how it moves; a sum one if it waits for several things.
#pragma once

#include "comm_groups.hpp"
#include "network_hops.hpp"
#include "plumb/simulator/longest_path.hpp"
#include "step_graph.hpp"

namespace plumb {

// Where a cost stands in LongestPath::costs_.
struct PathCosts {
  enum Kind : std::uint32_t { move, travel, rendezvous, num_kinds };  // launch + wire; latency; all three

  static constexpr std::uint32_t nothing = 0;
  static constexpr std::uint32_t launch = 1;
  static constexpr std::uint32_t first_action = 2;

  static std::uint32_t action(Op op, ChunkId chunk) {
    return first_action + 4 * static_cast<std::uint32_t>(chunk.value) + static_cast<std::uint32_t>(op);
  }
  static std::uint32_t hop(int num_chunks, TransferId transfer, Direction direction, Kind kind) {
    const auto hop = 2 * static_cast<std::uint32_t>(transfer.value) + (direction == Direction::forward ? 0U : 1U);
    return first_action + 4 * static_cast<std::uint32_t>(num_chunks) + num_kinds * hop + kind;
  }
};

class LongestPathBuilder {
 public:
  explicit LongestPathBuilder(LongestPath& path);
  // Throws SimulationStuck.
  void run();

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  struct StepState {
    std::int32_t pending = 0;
    std::int32_t subject = -1;  // -1: computes, -2: adds or zeroes, else the end of a message
  };
  struct GroupState {
    std::int32_t pending = 0;
    std::int32_t unfinished = 0;
    std::uint32_t begin = none;  // only of groups of several
    std::uint32_t end = none;
  };
  struct Ready {
    RankId rank;
    StepId step;
  };

  void prepare();
  void ready(RankId rank, StepId step);
  void finish(RankId rank, StepId step, std::uint32_t node);
  void issue(std::int32_t end);
  void emit_eager(MessageId message, bool sending);
  void emit_message(MessageId message);
  void through(std::int32_t end, std::uint32_t node);
  void pass(std::int32_t group);
  void begin_group(std::int32_t group);
  void take_waits(RankId rank, Range waits);
  void take_before(std::int32_t end);
  std::uint32_t add(std::uint32_t cost);

  bool is_eager(MessageId message) const;
  RankId rank_of(std::int32_t end) const;
  StepId step_of(std::int32_t end) const;
  Range waits_of(std::int32_t end) const;
  std::uint32_t cost_of(MessageId message, PathCosts::Kind kind) const;

  LongestPath& path_;
  const Program& program_;
  const StepGraph graph_;
  const CommGroups groups_;
  const bool has_streams_;
  std::vector<StepState> states_;
  std::vector<GroupState> group_states_;
  std::vector<std::uint8_t> issued_;   // [message] 1: send, 2: receive
  std::vector<std::uint32_t> halves_;  // [end] of eager messages: the node of an end that waits for its other one
  std::vector<Ready> queue_;
  std::vector<std::int32_t> begun_;  // groups that may begin
  std::size_t next_ = 0;
  std::size_t num_finished_ = 0;
};

}  // namespace plumb

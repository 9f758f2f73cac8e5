// SPDX-License-Identifier: Apache-2.0
//
// longest_path.hpp: a step's times without events, where nothing is shared.
//
// Where messages never share a resource and computations never slow down, the order of everything is fixed before any
// cost is known, and a step is the longest path through a graph. The graph is built once per program and kind of
// streams; each new set of costs is then one pass over flat arrays, many times faster than events. It gives exactly
// what simulate_network() gives, to the picosecond. Owns its arrays; the program must outlive it. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/network_model.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

// Why this network's times are not a longest path, naming the resource or setting; empty: they are. So where all
// capacities are infinite, or where all messages of a resource hold one stream from begin to end (one stream per rank
// and cards that no two ranks share). REQUIRES a sound network. O(transfers).
std::string what_is_shared(const Program& program, const UnitBytes& bytes, const NetworkModel& network);

class LongestPath {
 public:
  // Throws InputError where what_is_shared() is not empty, for what simulate_network() refuses, and for messages with
  // other units than their transfer; SimulationStuck.
  LongestPath(const Program& program, const UnitBytes& bytes, const NetworkModel& network);

  // The time of the step with other costs and other latencies, capacities, launch time and scales. Throws InputError
  // where those have something shared, other streams, or messages that became eager or no longer are.
  SimTime step(const CostModel& costs, const NetworkModel& network);
  // As built.
  SimTime step(const CostModel& costs) { return step(costs, network_); }

  // Everything about the last step().
  Timeline timeline() const;

  std::size_t num_nodes() const { return nodes_.size(); }
  std::size_t num_edges() const { return edges_.size(); }

 private:
  friend class LongestPathBuilder;
  struct Node {
    std::uint32_t end_of_edges;  // they begin where those of the node before end
    std::uint32_t cost;          // index into costs_
  };

  void set_costs(const CostModel& costs, const NetworkModel& network);

  const Program& program_;
  UnitBytes bytes_;
  NetworkModel network_;
  std::vector<Node> nodes_;              // in an order in which every edge comes from before
  std::vector<std::uint32_t> edges_;     // the nodes that must have ended
  std::vector<std::uint32_t> node_of_;   // [step] as StepGraph numbers them
  std::vector<std::uint32_t> start_of_;  // [message] the node with which it starts to move
  std::vector<bool> eager_;              // [transfer][direction]
  std::vector<SimTime> costs_;
  std::vector<SimTime> ends_;  // [node]
};

}  // namespace plumb

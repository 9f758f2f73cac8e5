// SPDX-License-Identifier: Apache-2.0
//
// pipeline_bounds.hpp (private): lower bounds of the candidates of one family that have cuts and placement in common.
//
// The first look costs next to nothing. The closer one goes through the schedule's computations once (ComputeOrder):
// what it leaves out are messages that wait for each other, and slots that are held before or after their use.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "compute_order.hpp"
#include "model_tables.hpp"
#include "plumb/sizing/evaluate.hpp"

namespace plumb {

class PipelineBounds {
 public:
  // Keeps references.
  PipelineBounds(const SizeRequest& request, const ModelTables& tables, const Candidate& candidate);

  // Of a candidate with the same cuts, placement and degrees. `activations`: that each rank holds at some time, at its
  // lightest. Of one that does not fit only peak_bytes is said.
  LowerBounds first_look(const Candidate& candidate, const std::vector<std::int64_t>& activations);
  // No less than the first look.
  LowerBounds closer_look(const Candidate& candidate, const LowerBounds& first, ComputeOrders& orders);

 private:
  struct End {
    double us = 0;
    double network_bytes = 0;
  };
  // What follows from the routing alone.
  struct Routed {
    SimTime busiest{0};  // all that a rank sends or receives, one message after the other
    double network_bytes = 0;
    std::optional<ChunkNeeds> needs{};  // made for a closer look
  };

  const std::vector<Footprint>& footprints(Sharding sharding);
  const End& end_of(const Candidate& candidate);
  double least_activations(std::size_t rank, std::int64_t count) const;
  Routed& routed(Policy policy);
  SimTime busiest_link(const Routing& routing) const;
  const LeastStep& least_step(const Candidate& candidate, ComputeOrders& orders);
  DepthMap depth_map() const;
  void bound_time();
  void bound_rank(RankId rank, SimTime head, SimTime tail, SimTime input_tail);
  const Link& link(RankId from, RankId to) const;

  const SizeRequest& request_;
  Layout layout_;
  Batch batch_;
  std::vector<int> cuts_;
  UnitBytes bytes_;
  LinkTable links_;
  std::vector<HeldParameters> held_;
  std::vector<double> workspaces_;
  std::vector<ActionTimes> times_;
  std::vector<double> activations_;             // [chunk] of one microbatch
  std::vector<std::vector<double>> by_weight_;  // [rank] the same of its chunks, ascending
  SimTime whole_{0};                            // of the computations, with full backwards
  SimTime split_{0};                            // and with split ones
  double expert_bytes_;
  std::map<Sharding, std::vector<Footprint>> footprints_;
  std::map<Sharding, End> ends_;
  std::map<Policy, Routed> routed_;
  std::map<std::tuple<ScheduleKind, int, Policy>, LeastStep> steps_;
};

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// fair_share.hpp: how fast flows move that share resources, in whole numbers.
//
// Max-min fair: no flow can get more without taking from one that has no more than it. By progressive filling: the
// resource that can give its flows least gives each the same share, which settles them; so on with what is left.
// When a flow starts or ends, only flows connected to it by shared resources are looked at. Rates are bytes per second
// in 2^-20, rounded down; what is left of a flow is known exactly, and its end is the nearest picosecond. It moves no
// bytes and keeps no clock.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plumb/simulator/network_model.hpp"

namespace plumb {

using FlowRate = std::int64_t;  // bytes per second, times 2^20

FlowRate flow_rate(double bytes_per_s);

// How long `bytes` take at this rate, rounded to the nearest picosecond; more than 2^62 ps count as 2^62.
SimTime flow_time(std::int64_t bytes, FlowRate rate);

class FairShare {
 public:
  using Flow = Id<struct FlowTag>;  // numbers of ended flows are used again
  static constexpr std::size_t max_path = 4;

  struct Change {
    Flow flow;
    SimTime finish;
  };

  // Infinite ones may not stand in paths.
  explicit FairShare(std::span<const NetworkResource> resources);

  // `path`: 1..max_path different resources. The flow moves nothing until share().
  Flow start(std::span<const ResourceId> path, std::int64_t bytes, SimTime now);
  // It is through.
  void end(Flow flow);
  // Shares anew around what has started and ended since the last call. Adds the flows whose finish is now another one.
  void share(SimTime now, std::vector<Change>& changes);

  SimTime finish(Flow flow) const { return flows_[flow.index()].finish; }
  FlowRate rate(Flow flow) const { return flows_[flow.index()].rate; }
  bool unsettled() const { return !dirty_.empty(); }

 private:
  __extension__ using Wide = unsigned __int128;

  struct FlowState {
    Wide left;  // bytes times 2^20 times picoseconds per second, as of `since`
    SimTime since{0};
    SimTime finish{0};
    FlowRate rate = 0;
    std::uint32_t seen = 0;     // the round that last looked at it
    std::uint32_t settled = 0;  // the round that last gave it a rate
    std::uint8_t length = 0;
    std::array<std::int32_t, max_path> path{};
    std::array<std::uint32_t, max_path> place{};  // in the resource's list
  };
  struct Member {
    std::int32_t flow;
    std::uint32_t hop;  // which resource of its path
  };
  struct ResourceState {
    FlowRate capacity = 0;
    FlowRate left = 0;  // while filling
    FlowRate share = 0;
    std::uint32_t unsettled = 0;
    std::uint32_t seen = 0;
    bool dirty = false;
    std::vector<Member> members;
  };

  void touch(std::int32_t resource);
  void collect(std::int32_t resource);
  void fill();
  void settle(std::int32_t resource, FlowRate share);
  void set_rate(std::int32_t flow, FlowRate rate);

  std::vector<ResourceState> resources_;
  std::vector<FlowState> flows_;
  std::vector<std::int32_t> unused_;
  std::vector<std::int32_t> dirty_;
  std::uint32_t round_ = 0;
  SimTime now_{0};
  std::vector<Change>* changes_ = nullptr;
  // One set of flows connected by resources.
  std::vector<std::int32_t> component_;
  std::size_t num_unsettled_ = 0;
};

}  // namespace plumb

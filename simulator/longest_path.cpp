// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/longest_path.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "longest_path_builder.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/exposure.hpp"

namespace plumb {
namespace {

constexpr std::int64_t longest_step = std::int64_t{1} << 62;

bool is_eager(const Transfer& transfer, std::int64_t unit_bytes, const NetworkModel& network) {
  const std::int64_t limit = network.protocol.eager_limit_bytes;
  return limit > 0 && unit_bytes * transfer.units() <= limit;
}

std::vector<bool> eager_ones(const Program& program, const UnitBytes& bytes, const NetworkModel& network) {
  std::vector<bool> eager;
  for (const Transfer& transfer : program.routing.transfers) {
    eager.push_back(is_eager(transfer, bytes.value, network));
    eager.push_back(is_eager(transfer, bytes.gradient_wire, network));
  }
  return eager;
}

// The streams that a message holds from begin to end.
struct Holders {
  std::int64_t sender = -1;
  std::int64_t receiver = -1;
};

Holders holders_of(const NetworkHop& hop, Direction direction, CommStreams streams, bool eager) {
  if (streams == CommStreams::unordered || streams == CommStreams::batched) return {};
  const std::int64_t kind = streams == CommStreams::per_direction && direction == Direction::backward ? 2 : 0;
  const std::int64_t in = streams == CommStreams::per_direction ? 1 : 0;
  return {4 * std::int64_t{hop.from.value} + kind, eager ? -1 : 4 * std::int64_t{hop.to.value} + kind + in};
}

CostModel only_bytes(const UnitBytes& bytes) { return CostModel(ActionTimes{}, Link{}, bytes); }

}  // namespace

std::string what_is_shared(const Program& program, const UnitBytes& bytes, const NetworkModel& network) {
  if (network.protocol.compute_share_while_active > 0 || network.protocol.compute_share_while_waiting > 0) {
    return "messages slow down computations";
  }
  if (cores_are_scarce(network.shared_cores)) return "ranks share the cores of a machine";
  const CostModel costs = only_bytes(bytes);
  const NetworkHops hops(program, costs, network);
  struct Common {
    bool used = false;
    Holders holders;  // of all messages so far
  };
  std::vector<Common> commons(network.resources.size());
  for (std::size_t t = 0; t < program.routing.transfers.size(); ++t) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      if (direction == Direction::backward && program.forward_only) continue;
      const NetworkHop& hop = hops.of(TransferId(static_cast<std::int32_t>(t)), direction);
      if (hop.unit_bytes == 0) continue;
      const Holders mine =
          holders_of(hop, direction, network.streams, is_eager(program.routing.transfers[t], hop.unit_bytes, network));
      for (const ResourceId resource : hop.resources()) {
        Common& common = commons[resource.index()];
        const auto kept = [&](std::int64_t stream) {
          return stream >= 0 && (stream == mine.sender || stream == mine.receiver) ? stream : -1;
        };
        common.holders = common.used ? Holders{kept(common.holders.sender), kept(common.holders.receiver)} : mine;
        common.used = true;
        if (common.holders.sender < 0 && common.holders.receiver < 0) {
          return fmt::format("{} may carry several messages at once", network.resources[resource.index()].name);
        }
      }
    }
  }
  return {};
}

LongestPath::LongestPath(const Program& program, const UnitBytes& bytes, const NetworkModel& network)
    : program_(program), bytes_(bytes), network_(network), eager_(eager_ones(program, bytes, network)) {
  require_sound(network, program.layout.pp());
  const std::string shared = what_is_shared(program, bytes, network);
  if (!shared.empty()) throw InputError("the step is not a longest path: " + shared);
  LongestPathBuilder(*this).run();
  nodes_.shrink_to_fit();
  edges_.shrink_to_fit();
  ends_.assign(nodes_.size(), SimTime(0));
}

void LongestPath::set_costs(const CostModel& costs, const NetworkModel& network) {
  const int num_chunks = program_.layout.num_chunks();
  costs.require_fits(num_chunks);
  costs_.assign(
      PathCosts::hop(num_chunks, TransferId(program_.routing.transfers.size()), Direction::forward, PathCosts::move),
      SimTime(0));
  costs_[PathCosts::launch] = network.protocol.launch;
  for (int c = 0; c < num_chunks; ++c) {
    const ChunkId chunk(c);
    const double scale = compute_scale(network, program_.layout.rank_of(chunk));
    for (const Op op : {Op::forward, Op::backward, Op::backward_input, Op::backward_weight}) {
      costs_[PathCosts::action(op, chunk)] = scaled(costs.time_of(op, chunk), scale);
    }
  }
  const NetworkHops hops(program_, costs, network);
  for (std::size_t t = 0; t < program_.routing.transfers.size(); ++t) {
    const TransferId transfer(t);
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const NetworkHop& hop = hops.of(transfer, direction);
      const SimTime wire = flow_time(hop.unit_bytes * program_.routing.transfers[t].units(), hop.rate);
      const auto cost = [&](PathCosts::Kind kind) -> SimTime& {
        return costs_[PathCosts::hop(num_chunks, transfer, direction, kind)];
      };
      cost(PathCosts::move) = network.protocol.launch + wire;
      cost(PathCosts::travel) = hop.latency;
      cost(PathCosts::rendezvous) = network.protocol.launch + hop.latency + wire;
    }
  }
}

SimTime LongestPath::step(const CostModel& costs, const NetworkModel& network) {
  if (&network != &network_) {
    require_sound(network, program_.layout.pp());
    if (network.streams != network_.streams) throw InputError("the path was built for other streams: build it anew");
    const std::string shared = what_is_shared(program_, costs.bytes(), network);
    if (!shared.empty()) throw InputError("the step is not a longest path: " + shared);
  }
  if (eager_ones(program_, costs.bytes(), network) != eager_) {
    throw InputError("other messages are eager than those the path was built for: build it anew");
  }
  set_costs(costs, network);
  const SimTime* const cost_of = costs_.data();
  SimTime* const ends = ends_.data();
  const std::uint32_t* edge = edges_.data();
  SimTime last{0};
  std::size_t i = 0;
  for (const Node& node : nodes_) {
    SimTime ready{0};
    for (const std::uint32_t* const stop = edges_.data() + node.end_of_edges; edge != stop; ++edge)
      ready = std::max(ready, ends[*edge]);
    const SimTime end = ready + cost_of[node.cost];
    ends[i++] = end;
    last = std::max(last, end);
    if (last.count() > longest_step) {
      throw InputError("the step would take more than 53 days of virtual time: give smaller costs");
    }
  }
  if (&network != &network_) network_ = network;
  return last;
}

Timeline LongestPath::timeline() const {
  const StepGraph graph(program_);
  const NetworkHops hops(program_, only_bytes(bytes_), network_);
  const bool has_streams = network_.streams != CommStreams::unordered;
  const auto end_of_step = [&](StepId step) { return ends_[node_of_[step.index()]]; };
  Timeline timeline;
  timeline.ranks.resize(program_.ranks.size());
  timeline.messages.resize(program_.messages.size());
  for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
    const RankId rank(r);
    const RankProgram& steps = program_.ranks[r];
    RankTimeline& times = timeline.ranks[r];
    for (std::size_t i = 0; i < steps.compute.size(); ++i) {
      const SimTime end = end_of_step(graph.compute(rank, static_cast<std::int32_t>(i)));
      const Compute& work = steps.compute[i].compute;
      times.compute.push_back({end - costs_[PathCosts::action(work.op, work.chunk)], end, SimTime(0)});
    }
    for (std::size_t i = 0; i < steps.comm.size(); ++i)
      times.comm_done.push_back(end_of_step(graph.comm(rank, static_cast<std::int32_t>(i))));
    for (std::size_t i = 0; i < steps.comm.size(); ++i) {
      const CommStep& step = steps.comm[i];
      if (step.kind != CommKind::send && step.kind != CommKind::receive) continue;
      SimTime ready{0};
      for (const Wait& wait : steps.waits_of(step.waits))
        ready = std::max(ready, timeline.finished(rank, wait));
      MessageTimes& message = timeline.messages[step.message.index()];
      (step.kind == CommKind::send ? message.send_ready : message.posted) = ready;
      (step.kind == CommKind::send ? message.sent : message.arrived) = times.comm_done[i];
    }
  }
  for (std::size_t m = 0; m < program_.messages.size(); ++m) {
    const Message& message = program_.messages[m];
    const bool rendezvous =
        has_streams && !eager_[2 * message.transfer.index() + (message.direction == Direction::forward ? 0 : 1)];
    const SimTime held = costs_[PathCosts::hop(program_.layout.num_chunks(), message.transfer, message.direction,
                                               rendezvous ? PathCosts::rendezvous : PathCosts::move)];
    timeline.messages[m].start = ends_[start_of_[m]] - held + network_.protocol.launch;
  }
  complete_measured(program_, timeline);
  return timeline;
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "pipeline_bounds.hpp"

#include <algorithm>

#include "network_share.hpp"
#include "plumb/cache/routing.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/sizing/pipeline_costs.hpp"
#include "plumb/sizing/step_end.hpp"

namespace plumb {
namespace {

// Sums of a closer look are not rounded as those of a simulation are.
constexpr double rounding = 1 - 1e-9;

bool splits_backward(ScheduleKind kind) {
  return kind != ScheduleKind::one_f_one_b && kind != ScheduleKind::interleaved && kind != ScheduleKind::gpipe &&
         kind != ScheduleKind::looped_bfs;
}

}  // namespace

PipelineBounds::PipelineBounds(const SizeRequest& request, const ModelTables& tables, const Candidate& candidate)
    : request_(request),
      layout_(layout_of(candidate)),
      batch_(batch_of(request, candidate)),
      cuts_(cuts_of(request, candidate, tables.costs)),
      bytes_(unit_bytes_of(request, candidate)),
      links_(pipeline_links(request.cluster, layout_.pp(), batch_.degrees, bytes_)),
      held_(held_parameters(request.shape, tables.parameters, cuts_, layout_, batch_.degrees)),
      workspaces_(chunk_workspaces(tables.workspaces, cuts_)),
      times_(chunk_times(tables.costs, cuts_)),
      activations_(chunk_activations(tables.costs, cuts_)),
      by_weight_(static_cast<std::size_t>(layout_.pp())),
      expert_bytes_(tables.expert_bytes) {
  apply_stragglers(times_, request.cluster, layout_);
  bound_time();
  for (ChunkId chunk; chunk.value < layout_.num_chunks(); chunk = chunk.next())
    by_weight_[layout_.rank_of(chunk).index()].push_back(activations_[chunk.index()]);
  for (std::vector<double>& rank : by_weight_)
    std::sort(rank.begin(), rank.end());
}

LowerBounds PipelineBounds::first_look(const Candidate& candidate, const std::vector<std::int64_t>& activations) {
  LowerBounds bounds;
  const std::vector<Footprint>& held = footprints(candidate.sharding);
  for (std::size_t rank = 0; rank < held.size(); ++rank)
    bounds.peak_bytes = std::max(bounds.peak_bytes, held[rank].total() + least_activations(rank, activations[rank]));
  if (bounds.peak_bytes > request_.memory_bytes) return bounds;
  const End& end = end_of(candidate);
  const Routed& sent = routed(candidate.policy);
  const SimTime computed = splits_backward(candidate.schedule) ? split_ : whole_;
  bounds.step_us = to_us(std::max(computed, sent.busiest)) + end.us;
  bounds.network_bytes = end.network_bytes + sent.network_bytes;
  return bounds;
}

LowerBounds PipelineBounds::closer_look(const Candidate& candidate, const LowerBounds& first, ComputeOrders& orders) {
  LowerBounds bounds = first;
  const LeastStep& least = least_step(candidate, orders);
  const std::vector<Footprint>& held = footprints(candidate.sharding);
  for (std::size_t rank = 0; rank < held.size(); ++rank)
    bounds.peak_bytes = std::max(bounds.peak_bytes, (held[rank].total() + least.held_bytes[rank]) * rounding);
  bounds.step_us = std::max(bounds.step_us, to_us(least.step) + end_of(candidate).us);
  return bounds;
}

const std::vector<Footprint>& PipelineBounds::footprints(Sharding sharding) {
  const auto [found, is_new] = footprints_.try_emplace(sharding);
  if (is_new) found->second = plumb::footprints(held_, workspaces_, layout_, batch_.degrees, sharding);
  return found->second;
}

const PipelineBounds::End& PipelineBounds::end_of(const Candidate& candidate) {
  const auto [found, is_new] = ends_.try_emplace(candidate.sharding);
  if (is_new) {
    const std::vector<StepEnd> ends = step_ends(held_, layout_, batch_, candidate.sharding, request_.cluster);
    found->second = {seconds(ends) * 1e6, fixed_network_bytes(request_, candidate, expert_bytes_, ends)};
  }
  return found->second;
}

// The lightest `count` activations of the rank, of which each chunk has one per microbatch.
double PipelineBounds::least_activations(std::size_t rank, std::int64_t count) const {
  double sum = 0;
  for (const double bytes : by_weight_[rank]) {
    const std::int64_t some = std::min<std::int64_t>(count, layout_.microbatches());
    sum += static_cast<double>(some) * bytes;
    count -= some;
  }
  return sum;
}

PipelineBounds::Routed& PipelineBounds::routed(Policy policy) {
  const auto [found, is_new] = routed_.try_emplace(policy);
  if (is_new) {
    const Routing routing = make_routing(layout_, depth_map(), policy);
    found->second.busiest = busiest_link(routing);
    found->second.network_bytes =
        pipeline_network_bytes(request_.cluster, layout_, routing, links_, bytes_, batch_.degrees.tp);
  }
  return found->second;
}

// A rank sends one message after the other, and receives so.
SimTime PipelineBounds::busiest_link(const Routing& routing) const {
  std::vector<SimTime> sending(static_cast<std::size_t>(layout_.pp()));
  std::vector<SimTime> receiving(sending.size());
  for (const Transfer& transfer : routing.transfers) {
    const SimTime out = link(transfer.from, transfer.to).value_unit * transfer.units();
    const SimTime back = link(transfer.to, transfer.from).gradient_unit * transfer.units();
    sending[transfer.from.index()] += out;
    receiving[transfer.to.index()] += out;
    sending[transfer.to.index()] += back;
    receiving[transfer.from.index()] += back;
  }
  const SimTime most = std::max(*std::max_element(sending.begin(), sending.end()),
                                *std::max_element(receiving.begin(), receiving.end()));
  return most * layout_.microbatches();
}

const LeastStep& PipelineBounds::least_step(const Candidate& candidate, ComputeOrders& orders) {
  const auto [found, is_new] = steps_.try_emplace({candidate.schedule, candidate.group, candidate.policy});
  if (is_new) {
    Routed& of = routed(candidate.policy);
    if (!of.needs) {
      const DepthMap depth = depth_map();
      of.needs.emplace(layout_, depth, make_routing(layout_, depth, candidate.policy), links_, bytes_,
                       batch_.degrees.tp, times_, activations_);
    }
    found->second = orders.of(candidate)->least_step(*of.needs, times_);
  }
  return found->second;
}

DepthMap PipelineBounds::depth_map() const {
  const bool blocks = request_.block_sublayers > 0;
  return DepthMap(cuts_.back(), blocks ? request_.block_sublayers : cuts_.back(), cuts_,
                  blocks ? Residual::attnres_block : Residual::standard);
}

// Rank r cannot begin before a microbatch has come through the chunks before its first one, and when it has computed
// the last gradient of that one, the chunks before it remain. Every hop carries at least one unit. Chunks without
// layers take no time and nothing need wait for them: they are passed over, with the hops beside them.
void PipelineBounds::bound_time() {
  SimTime head{0};
  SimTime tail{0};        // of full backwards
  SimTime input_tail{0};  // of I, W behind the last one only
  std::vector<bool> seen(static_cast<std::size_t>(layout_.pp()));
  bool follows = false;  // the chunk before has layers
  for (ChunkId chunk; chunk.value < layout_.num_chunks(); chunk = chunk.next()) {
    const int begin = chunk.value == 0 ? 0 : cuts_[chunk.previous().index()];
    if (cuts_[chunk.index()] == begin && chunk.value + 1 < layout_.num_chunks()) {
      follows = false;
      continue;
    }
    const RankId rank = layout_.rank_of(chunk);
    if (follows && layout_.rank_of(chunk.previous()) != rank) {
      const RankId before = layout_.rank_of(chunk.previous());
      const Link& out = link(before, rank);
      const Link& back = link(rank, before);
      head += out.latency + out.value_unit;
      tail += back.latency + back.gradient_unit;
      input_tail += back.latency + back.gradient_unit;
    }
    follows = true;
    if (!seen[rank.index()]) {
      seen[rank.index()] = true;
      bound_rank(rank, head, tail, input_tail);
    }
    const ActionTimes& times = times_[chunk.index()];
    head += times.forward;
    tail += times.backward;
    input_tail += times.backward_input;
  }
}

void PipelineBounds::bound_rank(RankId rank, SimTime head, SimTime tail, SimTime input_tail) {
  SimTime whole{0};
  SimTime split{0};  // a straggler's B and I + W are rounded each for itself
  SimTime weights{0};
  for (const ChunkId chunk : layout_.chunks_on(rank)) {
    const ActionTimes& times = times_[chunk.index()];
    whole += times.forward + times.backward;
    split += times.forward + std::min(times.backward, times.backward_input + times.backward_weight);
    weights += times.backward_weight;
  }
  whole_ = std::max(whole_, head + whole * layout_.microbatches() + tail);
  split *= layout_.microbatches();
  weights *= layout_.microbatches();
  split_ = std::max({split_, head + split, head + split - weights + input_tail});
}

const Link& PipelineBounds::link(RankId from, RankId to) const {
  return links_.links[links_.of_pair[static_cast<std::size_t>(from.value * links_.num_ranks + to.value)]];
}

}  // namespace plumb

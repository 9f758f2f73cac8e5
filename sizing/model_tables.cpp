// SPDX-License-Identifier: Apache-2.0
#include "model_tables.hpp"

#include "balanced_cuts.hpp"
#include "plumb/cache/cuts.hpp"
#include "plumb/sizing/model_config.hpp"

namespace plumb {
namespace {

std::vector<int> cuts_by_traffic(const SizeRequest& request, const Candidate& candidate) {
  const bool blocks = request.block_sublayers > 0;
  const int layers = static_cast<int>(request.shape.layers.size());
  const int sublayers = layers * sublayers_per_decoder_layer;
  return least_traffic_cuts(layout_of(candidate).with_microbatches(1),
                            {.sublayers = sublayers,
                             .units = layers,
                             .block = blocks ? request.block_sublayers : sublayers,
                             .residual = blocks ? Residual::attnres_block : Residual::standard,
                             .policy = blocks ? candidate.policy : Policy::cached});
}

}  // namespace

ModelTables model_tables(const SizeRequest& request, const Candidate& candidate) {
  const Batch batch = batch_of(request, candidate);
  ModelTables tables{.costs = sublayer_costs(request.shape, batch, request.cluster),
                     .parameters = sublayer_parameters(request.shape, candidate.degrees),
                     .workspaces = sublayer_workspaces(request.shape, batch)};
  for (const SublayerCosts& sublayer : tables.costs)
    tables.expert_bytes += sublayer.expert_bytes;
  return tables;
}

const ModelTables& TableCache::of(const SizeRequest& request, const Candidate& candidate) {
  const Degrees& degrees = candidate.degrees;
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = tables_.try_emplace({degrees.tp, degrees.ep, candidate.microbatch, candidate.recompute});
  if (is_new) found->second = model_tables(request, candidate);
  return found->second;
}

std::vector<double> chunk_activations(std::span<const SublayerCosts> sublayers, std::span<const int> cuts) {
  std::vector<double> chunks;
  std::size_t sublayer = 0;
  for (const int end : cuts) {
    double sum = 0;
    for (; sublayer < static_cast<std::size_t>(end); ++sublayer)
      sum += sublayers[sublayer].activation_bytes;
    chunks.push_back(sum);
  }
  chunks.back() += sublayers.back().activation_bytes;
  return chunks;
}

std::vector<int> cuts_of(const SizeRequest& request, const Candidate& candidate, std::span<const SublayerCosts> costs) {
  if (candidate.cuts == CutRule::traffic) return cuts_by_traffic(request, candidate);
  std::vector<double> weights;
  const auto all_of = [&](std::size_t sublayer) {
    return costs[sublayer].forward_seconds + costs[sublayer].backward_input_seconds +
           costs[sublayer].backward_weight_seconds;
  };
  for (std::size_t layer = 0; layer < request.shape.layers.size(); ++layer)
    weights.push_back(all_of(2 * layer) + all_of(2 * layer + 1));
  std::vector<int> cuts = balanced_cuts(weights, all_of(costs.size() - 1), candidate.pp * candidate.vp);
  for (int& cut : cuts)
    cut *= sublayers_per_decoder_layer;
  return cuts;
}

std::vector<int> cuts_of(const SizeRequest& request, const Candidate& candidate) {
  if (candidate.cuts == CutRule::traffic) return cuts_by_traffic(request, candidate);
  return cuts_of(request, candidate, sublayer_costs(request.shape, batch_of(request, candidate), request.cluster));
}

}  // namespace plumb

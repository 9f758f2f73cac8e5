// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/footprint.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "plumb/sizing/layer_costs.hpp"

namespace plumb {
namespace {

constexpr std::array names{std::pair{Sharding::none, std::string_view("none")},
                           std::pair{Sharding::optimizer, std::string_view("optimizer")},
                           std::pair{Sharding::gradients, std::string_view("gradients")}};

HeldParameters held(const std::vector<Weight>& weights, const Degrees& degrees) {
  HeldParameters sum;
  for (const Weight& weight : weights) {
    const auto all = static_cast<double>(weight.parameters());
    if (weight.spread == Spread::experts) {
      sum.experts += all / degrees.ep;
    } else if (weight.spread == Spread::replicated) {
      sum.replicated += all;
    } else {
      sum.split += all / degrees.tp;
    }
  }
  return sum;
}

void add(HeldParameters& to, const HeldParameters& more) {
  to.replicated += more.replicated;
  to.split += more.split;
  to.experts += more.experts;
}

// Parameters of which this device is the one that keeps them, where they are sharded.
double own(const HeldParameters& held, const Degrees& degrees) {
  return (held.replicated + held.split) / degrees.dp + held.experts / expert_replicas(degrees);
}

double workspace_of_head(const ModelShape& shape, const Batch& batch) {
  constexpr double score_bytes = 4;
  return static_cast<double>(batch.tokens) / batch.degrees.tp * shape.vocabulary * score_bytes;
}

double workspace_of_layer(const ModelShape& shape, int layer, const Batch& batch) {
  double gathered = 0;
  if (batch.degrees.tp > 1) gathered = 2.0 * batch.tokens * shape.hidden * batch.element_bytes;
  if (batch.recompute == Recompute::none) return gathered;
  Batch kept = batch;
  kept.recompute = Recompute::none;
  const auto again = [&](auto&& work) {
    return work(shape, layer, kept).activation_bytes - work(shape, layer, batch).activation_bytes;
  };
  const double attention = again(attention_work);
  const double mlp = again(mlp_work);
  return gathered + (batch.recompute == Recompute::full ? attention + mlp : std::max(attention, mlp));
}

}  // namespace

std::string_view to_string(Sharding sharding) { return names[static_cast<std::size_t>(sharding)].second; }

Sharding parse_sharding(std::string_view text) {
  for (const auto& [sharding, name] : names) {
    if (name == text) return sharding;
  }
  throw InputError(fmt::format("sharding '{}' is unknown, legal are none, optimizer and gradients", text));
}

std::vector<HeldParameters> sublayer_parameters(const ModelShape& shape, const Degrees& degrees) {
  std::vector<HeldParameters> sublayers{held(embedding_weights(shape), degrees)};
  for (int layer = 0; layer < static_cast<int>(shape.layers.size()); ++layer) {
    sublayers.push_back(held(attention_weights(shape, layer), degrees));
    sublayers.push_back(held(mlp_weights(shape, layer), degrees));
  }
  sublayers.push_back(held(head_weights(shape), degrees));
  return sublayers;
}

std::vector<HeldParameters> held_parameters(const ModelShape& shape, std::span<const int> cuts, const Layout& layout,
                                            const Degrees& degrees) {
  require_cuts(shape, cuts);
  return held_parameters(shape, sublayer_parameters(shape, degrees), cuts, layout, degrees);
}

std::vector<HeldParameters> held_parameters(const ModelShape& shape, std::span<const HeldParameters> sublayers,
                                            std::span<const int> cuts, const Layout& layout, const Degrees& degrees) {
  std::vector<HeldParameters> chunks(cuts.size());
  add(chunks.front(), sublayers.front());
  std::size_t chunk = 0;
  for (int sublayer = 0; sublayer < cuts.back(); ++sublayer) {
    while (cuts[chunk] <= sublayer)
      ++chunk;
    add(chunks[chunk], sublayers[static_cast<std::size_t>(sublayer) + 1]);
  }
  add(chunks.back(), sublayers.back());
  const ChunkId last(layout.num_chunks() - 1);
  if (shape.tied_embeddings && layout.rank_of(last) != layout.rank_of(ChunkId(0))) {
    chunks.back().split += static_cast<double>(shape.vocabulary) * shape.hidden / degrees.tp;
  }
  return chunks;
}

std::vector<double> sublayer_workspaces(const ModelShape& shape, const Batch& batch) {
  std::vector<double> all;
  for (int layer = 0; layer < static_cast<int>(shape.layers.size()); ++layer)
    all.insert(all.end(), 2, workspace_of_layer(shape, layer, batch));
  all.push_back(workspace_of_head(shape, batch));
  return all;
}

std::vector<Footprint> footprints(std::span<const HeldParameters> parameters, std::span<const double> workspaces,
                                  const Layout& layout, const Degrees& degrees, Sharding sharding) {
  std::vector<Footprint> all;
  for (RankId rank; rank.value < layout.pp(); rank = rank.next()) {
    HeldParameters held;
    double heaviest = 0;
    Footprint footprint;
    for (const ChunkId chunk : layout.chunks_on(rank)) {
      add(held, parameters[chunk.index()]);
      heaviest = std::max(heaviest, parameters[chunk.index()].all());
      footprint.workspace_bytes = std::max(footprint.workspace_bytes, workspaces[chunk.index()]);
    }
    const double whole = held.all();
    const double part = own(held, degrees);
    const double gradients = sharding == Sharding::gradients ? std::min(part + heaviest, whole) : whole;
    footprint.weights_bytes = weight_bytes * whole;
    footprint.gradients_bytes = gradient_bytes * gradients;
    footprint.optimizer_bytes = optimizer_bytes * (sharding == Sharding::none ? whole : part);
    all.push_back(footprint);
  }
  return all;
}

std::vector<Footprint> footprints(const ModelShape& shape, std::span<const int> cuts, const Layout& layout,
                                  const Batch& batch, Sharding sharding) {
  require_divides(shape, batch);
  const std::vector<HeldParameters> chunks = held_parameters(shape, cuts, layout, batch.degrees);
  const std::vector<double> workspaces = chunk_workspaces(sublayer_workspaces(shape, batch), cuts);
  return footprints(chunks, workspaces, layout, batch.degrees, sharding);
}

std::vector<double> chunk_workspaces(std::span<const double> sublayers, std::span<const int> cuts) {
  std::vector<double> chunks;
  int begin = 0;
  for (const int end : cuts) {
    double most = 0;
    for (int sublayer = begin; sublayer < end; ++sublayer)
      most = std::max(most, sublayers[static_cast<std::size_t>(sublayer)]);
    chunks.push_back(most);
    begin = end;
  }
  chunks.back() = std::max(chunks.back(), sublayers.back());
  return chunks;
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// footprint.hpp: what a device of each pipeline rank holds throughout a step: weights, gradients, optimizer, and room
// to compute in. What comes and goes with microbatches (activations, blocks, messages) is memory.hpp's.
//
// bf16 weights, fp32 gradients that add up over the microbatches, Adam with an fp32 master copy and two moments. What
// driver, libraries and fragmentation take is not in here: Gpu::usable_mem_fraction leaves it out of what there is. A
// tensor of which several devices have the same part can be sharded over them: dp for all but experts, which are dealt
// out over ep of the tp x dp devices of a stage and so exist tp x dp / ep times only. Bytes of one device. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plumb/schedule/layout.hpp"
#include "plumb/sizing/device_work.hpp"
#include "plumb/sizing/model_shape.hpp"

namespace plumb {

// What replicas of a device hold a part of each, instead of all.
enum class Sharding : std::uint8_t {
  none,
  optimizer,  // master copy and moments (ZeRO-1)
  gradients   // and gradients (ZeRO-2): reduced after every backward, so that only one chunk's exist in full
};

std::string_view to_string(Sharding sharding);
// "none", "optimizer" or "gradients", else InputError.
Sharding parse_sharding(std::string_view text);

inline constexpr double weight_bytes = 2;
inline constexpr double gradient_bytes = 4;
inline constexpr double optimizer_bytes = 12;

// Parameters that one device holds, by how many others hold the same ones.
struct HeldParameters {
  double replicated = 0;  // whole on each of the tp x dp devices of the stage
  double split = 0;       // a part by heads or channels: the same on dp devices
  double experts = 0;     // some of the experts: the same ones on tp x dp / ep devices
  double all() const { return replicated + split + experts; }
  friend bool operator==(const HeldParameters&, const HeldParameters&) = default;
};

// How many devices hold the same experts: tp x dp / ep.
inline double expert_replicas(const Degrees& degrees) { return static_cast<double>(degrees.gpus()) / degrees.ep; }

// Of the embedding, of each sublayer, and of the head: 2 more than sublayers. A tied head counts nothing.
std::vector<HeldParameters> sublayer_parameters(const ModelShape& shape, const Degrees& degrees);

// Per chunk. Where the head is tied and the last chunk lies on another rank than the first, that has the embedding too.
// Throws InputError as chunk_times() does. The second takes sublayer_parameters().
std::vector<HeldParameters> held_parameters(const ModelShape& shape, std::span<const int> cuts, const Layout& layout,
                                            const Degrees& degrees);
std::vector<HeldParameters> held_parameters(const ModelShape& shape, std::span<const HeldParameters> sublayers,
                                            std::span<const int> cuts, const Layout& layout, const Degrees& degrees);

struct Footprint {
  double weights_bytes = 0;
  double gradients_bytes = 0;
  double optimizer_bytes = 0;
  // Of the sublayer that needs most while it runs: its input gathered over tp and its output before it is scattered;
  // the scores of the head in fp32; what is recomputed of a decoder layer.
  double workspace_bytes = 0;
  double total() const { return weights_bytes + gradients_bytes + optimizer_bytes + workspace_bytes; }
};

// Of each sublayer's decoder layer, then of the head.
std::vector<double> sublayer_workspaces(const ModelShape& shape, const Batch& batch);
// The largest of each chunk.
std::vector<double> chunk_workspaces(std::span<const double> sublayers, std::span<const int> cuts);

// Per rank, from held_parameters() and the largest workspace of each chunk: for those who try many.
std::vector<Footprint> footprints(std::span<const HeldParameters> parameters, std::span<const double> workspaces,
                                  const Layout& layout, const Degrees& degrees, Sharding sharding);

// Per rank. Throws InputError as chunk_times() does.
std::vector<Footprint> footprints(const ModelShape& shape, std::span<const int> cuts, const Layout& layout,
                                  const Batch& batch, Sharding sharding);

}  // namespace plumb

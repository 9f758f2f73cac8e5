// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "plumb/sizing/cluster_file.hpp"
#include "plumb/sizing/search.hpp"

namespace plumb {
namespace {

// To be raised with every change of what evaluate() says.
constexpr int model_version = 1;

// FNV-1a, 64 bits.
std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) {
    value ^= static_cast<unsigned char>(c);
    value *= 0x100000001b3;
  }
  return value;
}

std::string text_of(const GroupedAttention& a) {
  return fmt::format("grouped {} {} {} {} {} {} {}", a.heads, a.key_value_heads, a.head_width, a.query_key_norm,
                     a.biases, a.output_bias, a.output_gate);
}

std::string text_of(const LatentAttention& a) {
  return fmt::format("latent {} {} {} {} {} {} {}", a.heads, a.query_rank, a.key_value_rank, a.nope_width, a.rope_width,
                     a.value_width, a.output_gate);
}

std::string text_of(const ModelShape& shape) {
  const DeltaAttention& d = shape.delta;
  const Experts& e = shape.experts;
  std::string text = fmt::format("{} {} {} {} {} {};", shape.hidden, shape.vocabulary, shape.positions,
                                 shape.tied_embeddings, shape.depth_attention, shape.norm_biases);
  text += std::visit([](const auto& attention) { return text_of(attention); }, shape.attention);
  text += fmt::format(";{} {} {} {} {} {} {} {}", d.key_heads, d.value_heads, d.key_width, d.value_width, d.conv_taps,
                      d.per_channel_decay, d.full_rank_gate, d.decay_entries);
  text += fmt::format(";{} {} {}", shape.mlp.width, shape.mlp.matrices, shape.mlp.biases);
  text += fmt::format(";{} {} {} {} {} {} {} {};", e.count, e.per_token, e.width, e.latent_width, e.latent_norm,
                      e.shared_width, e.shared_gate, e.router_bias);
  for (const DecoderLayer& layer : shape.layers)
    text += fmt::format("{}{}", layer.linear_attention ? 'l' : 'a', layer.experts ? 'e' : 'm');
  return text;
}

}  // namespace

std::string digest_of(const SizeRequest& request) {
  const std::string text =
      fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}", model_version, text_of(request.shape), request.block_sublayers,
                  to_json(request.cluster), request.gpus, request.global_batch, request.sequence, request.memory_bytes,
                  request.gradient_wire == GradientWire::fp32 ? "fp32" : "storage");
  return fmt::format("{:016x}", hash(text));
}

}  // namespace plumb

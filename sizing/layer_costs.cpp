// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/layer_costs.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "plumb/sizing/model_config.hpp"
#include "plumb/sizing/weights.hpp"

namespace plumb {
namespace {

double products_used(const std::vector<Weight>& weights) {
  double sum = 0;
  for (const Weight& weight : weights) {
    if (weight.is_product) sum += static_cast<double>(weight.parameters_used());
  }
  return sum;
}

Work work_of(double used_parameters, double core) {
  return {2 * used_parameters + core, 2 * used_parameters + 2 * core, 2 * used_parameters};
}

// What a query and a key, and what a value have per token, over all heads.
double width_of(const GroupedAttention& a) { return 2.0 * a.heads * a.head_width; }
double width_of(const LatentAttention& a) {
  return static_cast<double>(a.heads) * (a.nope_width + a.rope_width + a.value_width);
}

}  // namespace

double core_flops(const ModelShape& shape, int layer, int sequence) {
  if (shape.layers[static_cast<std::size_t>(layer)].linear_attention) {
    return 6.0 * shape.delta.value_heads * shape.delta.key_width * shape.delta.value_width;
  }
  return std::visit([](const auto& attention) { return width_of(attention); }, shape.attention) *
         (static_cast<double>(sequence) + 1);
}

std::vector<Work> sublayer_work(const ModelShape& shape, int sequence) {
  std::vector<Work> work;
  for (int layer = 0; layer < static_cast<int>(shape.layers.size()); ++layer) {
    work.push_back(work_of(products_used(attention_weights(shape, layer)), core_flops(shape, layer, sequence)));
    work.push_back(work_of(products_used(mlp_weights(shape, layer)), 0));
  }
  work.push_back(work_of(products_used(head_weights(shape)), 0));
  return work;
}

void require_cuts(const ModelShape& shape, std::span<const int> cuts) {
  const int sublayers = static_cast<int>(shape.layers.size()) * sublayers_per_decoder_layer;
  if (cuts.empty() || cuts.back() != sublayers || cuts.front() < 0 || !std::is_sorted(cuts.begin(), cuts.end())) {
    throw InputError(fmt::format("{} has {} sublayers: the chunks must end in ascending order, the last there",
                                 shape.name, sublayers));
  }
}

std::vector<ActionTimes> chunk_times(const ModelShape& shape, std::span<const int> cuts, const Rate& rate) {
  require_cuts(shape, cuts);
  if (rate.tokens < 1 || rate.sequence < 1 || !(rate.teraflops > 0)) {
    throw InputError(fmt::format("{} tokens in sequences of {} at {} TFLOP/s: all must be more than 0", rate.tokens,
                                 rate.sequence, rate.teraflops));
  }
  const std::vector<Work> work = sublayer_work(shape, rate.sequence);
  const double us_per_flop = rate.tokens / (rate.teraflops * 1e6);
  std::vector<ActionTimes> times;
  std::size_t at = 0;
  for (std::size_t chunk = 0; chunk < cuts.size(); ++chunk) {
    const std::size_t end = static_cast<std::size_t>(cuts[chunk]) + (chunk + 1 == cuts.size() ? 1 : 0);
    Work sum;
    for (; at < end; ++at) {
      sum.forward += work[at].forward;
      sum.backward_input += work[at].backward_input;
      sum.backward_weight += work[at].backward_weight;
    }
    times.push_back(action_times(from_us(sum.forward * us_per_flop, "the time of F"),
                                 from_us(sum.backward_input * us_per_flop, "the time of I"),
                                 from_us(sum.backward_weight * us_per_flop, "the time of W")));
  }
  return times;
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/device_work.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "plumb/sizing/layer_costs.hpp"

namespace plumb {
namespace {

constexpr double accumulator_bytes = 4;  // of a weight's gradient, accumulated: read and written
constexpr double chunk_tokens = 64;      // of chunked linear attention

// Softmax attention forward again, and four products more: five products backward for two forward.
constexpr double fused_backward = 2.5;

class WorkBuilder {
 public:
  WorkBuilder(const ModelShape& shape, const Batch& batch)
      : shape_(shape),
        element_(batch.element_bytes),
        tokens_(batch.tokens),
        tp_(batch.degrees.tp),
        share_(tokens_ / tp_),
        batch_(batch) {}

  void products(const std::vector<Weight>& weights) {
    for (const Weight& weight : weights) {
      if (weight.is_product) product(weight);
    }
  }

  // Bytes per token in each pass, on the tokens or channels of this device.
  void elementwise(double forward_bytes, double backward_bytes) {
    add(work_.forward, {KernelClass::elementwise, 0, forward_bytes});
    add(work_.backward_input, {KernelClass::elementwise, 0, backward_bytes});
  }

  // The sublayer's output is added to a stream, or to a partial sum whose history its input reads.
  void residual_and_norm(int sublayers_before) {
    const double row = share_ * shape_.hidden * element_;
    elementwise(2 * row, 3 * row);  // norm: read, write; backward: two reads, one write
    const ResidualDesign& design = batch_.residual;
    const double m = design.num_streams;
    const bool attends = batch_.block_sublayers > 0 &&
                         (design.kind == ResidualKind::attnres_block || design.kind == ResidualKind::attnres_full);
    if (design.streams == StreamKind::none && !attends) elementwise(3 * row, 3 * row);
    if (design.streams != StreamKind::none) streams(m, row);
    if (attends) {
      // Two phases: a block is read once for all sublayers of a block; backward adds to a fp32 sum per block as well.
      // With the ordinary addition, which the streams contain already.
      const double added = design.streams == StreamKind::none ? 3 : 0;
      const double blocks = 1 + sublayers_before / batch_.block_sublayers;
      const double per_sublayer = blocks / batch_.block_sublayers;
      elementwise((m * (per_sublayer + 2) + added) * row,
                  (m * (per_sublayer * (1 + 2 * fp32_ratio()) + 5) + added) * row);
    }
    const bool begins_layer = sublayers_before % 2 == 0 && sublayers_before > 0;
    if (begins_layer && design.kind == ResidualKind::denseformer) averages(1, sublayers_before / 2, row);
    if (begins_layer && design.kind == ResidualKind::muddformer) {
      const bool head = sublayers_before == 2 * static_cast<int>(shape_.layers.size());
      averages(head ? 1 : 4, sublayers_before / 2, row);
    }
  }

  void tensor_collectives() {
    if (tp_ == 1) return;
    // Gathered where the sublayer begins, scattered where it ends; mirrored in the backward.
    const double bytes = (tp_ - 1) / tp_ * tokens_ * shape_.hidden * element_;
    for (Collectives* pass : {&work_.forward_collectives, &work_.backward_collectives}) {
      pass->tensor_bytes += 2 * bytes;
      pass->num_tensor += 2;
    }
  }

  void expert_collectives() {
    const double ep = batch_.degrees.ep;
    if (ep == 1) return;
    const double bytes = (ep - 1) / ep * share_ * shape_.experts.per_token * expert_channels() * element_;
    for (Collectives* pass : {&work_.forward_collectives, &work_.backward_collectives}) {
      pass->expert_bytes += 2 * bytes;
      pass->num_expert += 2;
    }
  }

  void core(const GroupedAttention& a, int layer) {
    const double keys = 2.0 * a.key_value_heads * a.head_width;
    softmax_core(layer, a.heads, static_cast<double>(a.heads) * a.head_width * 2 + keys);
    keep(tokens_ / tp_ * (static_cast<double>(a.heads) * a.head_width * (a.output_gate ? 3 : 2) + keys));
    // Rotation of queries and keys.
    const double rotated = tokens_ / tp_ * (static_cast<double>(a.heads) * a.head_width + keys / 2) * element_;
    elementwise(2 * rotated, 2 * rotated);
  }

  void core(const LatentAttention& a, int layer) {
    const double queries = static_cast<double>(a.heads) * (a.nope_width + a.rope_width);
    const double values = static_cast<double>(a.heads) * a.value_width;
    softmax_core(layer, a.heads, 2 * queries + 2 * values);
    keep(tokens_ / tp_ * (2 * queries + values * (a.output_gate ? 3 : 2)));
    keep(share_ * (a.query_rank + a.key_value_rank + a.rope_width));
    const double gathered = tokens_ / tp_ * (2 * queries + values) * element_;  // keys are put together of two parts
    elementwise(2 * gathered, 2 * gathered);
    if (a.output_gate) elementwise(3 * tokens_ / tp_ * values * element_, 5 * tokens_ / tp_ * values * element_);
  }

  void linear_core(int layer) {
    const DeltaAttention& a = shape_.delta;
    const double keys = static_cast<double>(a.key_heads) * a.key_width;
    const double values = static_cast<double>(a.value_heads) * a.value_width;
    const double decay = a.per_channel_decay ? keys : a.value_heads;
    const double rows = tokens_ / tp_;
    // The state's products, and within a chunk of tokens those of keys with keys and queries, and of both with values.
    const double flops = rows * (core_flops(shape_, layer, batch_.sequence) +
                                 a.value_heads * chunk_tokens * (3.0 * a.key_width + 2.0 * a.value_width));
    const double bytes = rows * (2 * keys + 2 * values + decay) * element_;
    add(work_.forward, {KernelClass::linear_attention, flops, bytes});
    add(work_.backward_input, {KernelClass::linear_attention, fused_backward * flops, 2 * bytes});
    elementwise(2 * rows * (2 * keys + values) * element_, 4 * rows * (2 * keys + values) * element_);  // convolutions
    elementwise(2 * rows * decay * element_, 3 * rows * decay * element_);
    elementwise(3 * rows * values * element_, 5 * rows * values * element_);  // gated norm
    keep(rows * (2 * (2 * keys + values) + decay + 3 * values));
  }

  void dense(double width, int matrices) {
    const double rows = tokens_ / tp_ * width * element_;
    activation(rows, matrices);
  }

  void routed() {
    const Experts& e = shape_.experts;
    const double routed = share_ * e.per_token;
    activation(routed * e.width * element_, 3);
    // Copies in order of experts, and the weighted sum back.
    const double row = routed * expert_channels() * element_;
    elementwise(2 * row, 2 * row);
    elementwise(2 * row, 2 * row);
    keep(routed * expert_channels());
    if (e.shared_width > 0) dense(e.shared_width, 3);
  }

  void loss() {
    const double scores = tokens_ / tp_ * shape_.vocabulary;
    elementwise(scores * (element_ + 4 + 4), scores * (4 + element_));
    keep(scores);
  }

  // The input of the products, of which sequence parallelism keeps a share.
  void keep_input() { keep(2 * share_ * shape_.hidden); }

  DeviceWork take() {
    if (batch_.recompute == Recompute::full) {
      work_.backward_input.insert(work_.backward_input.begin(), work_.forward.begin(), work_.forward.end());
      work_.backward_collectives.tensor_bytes += work_.forward_collectives.tensor_bytes;
      work_.backward_collectives.num_tensor += work_.forward_collectives.num_tensor;
      work_.backward_collectives.expert_bytes += work_.forward_collectives.expert_bytes;
      work_.backward_collectives.num_expert += work_.forward_collectives.num_expert;
      work_.activation_bytes = input_tensors() * share_ * shape_.hidden * element_ / 2;  // one input per decoder layer
    }
    return std::move(work_);
  }

 private:
  static void add(std::vector<Kernel>& pass, const Kernel& kernel) { pass.push_back(kernel); }

  // Hyper-Connections as mHC fuses them: coefficients from m rows; the input from m, written; the output spread and the
  // streams mixed in one kernel. Backward each undone, the first two in one kernel with the sums of m gradients.
  void streams(double m, double row) {
    for (const double rows : {m, m + 1, 2 * m + 1})
      add(work_.forward, {KernelClass::elementwise, 0, rows * row});
    for (const double rows : {3 * m + 2, 3 * m + 1})
      add(work_.backward_input, {KernelClass::elementwise, 0, rows * row});
    keep(m * share_ * shape_.hidden);  // the streams; the sublayer's input and its norm are kept as always
  }

  // `ways` averages of the outputs of so many layers and the embedding, read once for all; backward every gradient and
  // every row, which meets its fp32 sum. Queries, keys and values of their own have norms of their own.
  void averages(int ways, int layers, double row) {
    const double rows = layers + 1;
    elementwise((rows + ways) * row, (ways + rows * (1 + 2 * fp32_ratio())) * row);
    if (ways == 1) return;
    for (int i = 0; i < 2; ++i)
      elementwise(2 * row, 3 * row);
    keep(5 * share_ * shape_.hidden);  // two more of the norms' results, three more of their inputs
  }

  double fp32_ratio() const { return accumulator_bytes / element_; }

  // What a layer takes from the one before, apart from what the values of blocks hold.
  double input_tensors() const { return batch_.residual.num_streams; }

  double expert_channels() const {
    return shape_.experts.latent_width > 0 ? shape_.experts.latent_width : shape_.hidden;
  }

  void keep(double elements) { work_.activation_bytes += elements * element_; }

  void product(const Weight& weight) {
    const bool routed = weight.spread == Spread::experts;
    double in = static_cast<double>(weight.in);
    double out = static_cast<double>(weight.out);
    double rows = tokens_;
    double copies = 1;
    if (routed) {
      rows = share_ * static_cast<double>(weight.used);
      copies = static_cast<double>(weight.copies) / batch_.degrees.ep;
    } else if (weight.spread == Spread::columns) {
      out /= tp_;
    } else if (weight.spread == Spread::rows) {
      in /= tp_;
    } else {
      rows = share_;
    }
    const KernelClass kind = routed ? KernelClass::expert_products : KernelClass::products;
    const double flops = 2 * rows * in * out;
    const double moved = rows * (in + out) * element_;
    const double matrix = in * out * copies;
    add(work_.forward, {kind, flops, moved + matrix * element_, tiles(rows / copies, out, copies)});
    add(work_.backward_input, {kind, flops, moved + matrix * element_, tiles(rows / copies, in, copies)});
    add(work_.backward_weight, {kind, flops, moved + 2 * matrix * accumulator_bytes, tiles(in, out, copies)});
  }

  static double tiles(double rows, double columns, double copies) {
    return std::ceil(rows / product_tile_rows) * std::ceil(columns / product_tile_columns) * copies;
  }

  void softmax_core(int layer, int heads, double widths) {
    const double causal = tokens_ / tp_ * core_flops(shape_, layer, batch_.sequence);
    const double bytes = tokens_ / tp_ * widths * element_;
    if (batch_.fused_attention) {
      add(work_.forward, {KernelClass::attention, causal, bytes});
      add(work_.backward_input, {KernelClass::attention, fused_backward * causal, 2 * bytes});
      return;
    }
    // The whole square of scores is computed and goes through memory: written, masked and normalised, dropped out with
    // a mask of a byte, read; backward as often and the products twice.
    const double scores = tokens_ / tp_ * heads * batch_.sequence;
    const double square = 2 * causal;
    const std::vector<Kernel> forward{{KernelClass::attention, square / 2, bytes / 2 + scores * element_},
                                      {KernelClass::elementwise, 0, scores * 2 * element_},
                                      {KernelClass::elementwise, 0, scores * (2 * element_ + 1)},
                                      {KernelClass::attention, square / 2, bytes / 2 + scores * element_}};
    work_.forward.insert(work_.forward.end(), forward.begin(), forward.end());
    if (batch_.recompute == Recompute::selective) {
      work_.backward_input.insert(work_.backward_input.end(), forward.begin(), forward.end());
    } else {
      work_.activation_bytes += scores * (2 * element_ + 1);
    }
    add(work_.backward_input, {KernelClass::attention, square, bytes + 2 * scores * element_});
    add(work_.backward_input, {KernelClass::elementwise, 0, scores * (2 * element_ + 1)});
    add(work_.backward_input, {KernelClass::elementwise, 0, scores * 3 * element_});
    add(work_.backward_input, {KernelClass::attention, square, bytes + 2 * scores * element_});
  }

  // `rows`: bytes of one of the tensors between the products.
  void activation(double rows, int matrices) {
    const double inputs = matrices - 1;
    elementwise((inputs + 1) * rows, (2 * inputs + 1) * rows);
    work_.activation_bytes += inputs * rows;
    if (batch_.recompute == Recompute::selective) {
      add(work_.backward_input, {KernelClass::elementwise, 0, (inputs + 1) * rows});
    } else {
      work_.activation_bytes += rows;
    }
  }

  const ModelShape& shape_;
  double element_;
  double tokens_;
  double tp_;
  double share_;  // tokens of this device where tokens are split
  Batch batch_;
  DeviceWork work_;
};

void require_split(std::string_view what, int count, std::string_view flag, int degree) {
  if (count % degree == 0) return;
  int nearest = degree;
  while (nearest > 1 && count % nearest != 0)
    --nearest;
  throw InputError(
      fmt::format("{} {} does not divide the {} {}: the nearest that does is {}", flag, degree, count, what, nearest));
}

}  // namespace

DeviceWork attention_work(const ModelShape& shape, int layer, const Batch& batch) {
  WorkBuilder builder(shape, batch);
  builder.residual_and_norm(2 * layer);
  builder.keep_input();
  builder.tensor_collectives();
  builder.products(attention_weights(shape, layer));
  if (shape.layers[static_cast<std::size_t>(layer)].linear_attention) {
    builder.linear_core(layer);
  } else {
    std::visit([&](const auto& attention) { builder.core(attention, layer); }, shape.attention);
  }
  return builder.take();
}

DeviceWork mlp_work(const ModelShape& shape, int layer, const Batch& batch) {
  WorkBuilder builder(shape, batch);
  builder.residual_and_norm(2 * layer + 1);
  builder.keep_input();
  builder.products(mlp_weights(shape, layer));
  if (shape.layers[static_cast<std::size_t>(layer)].experts) {
    builder.routed();
    builder.expert_collectives();
    if (shape.experts.shared_width > 0) builder.tensor_collectives();
  } else {
    builder.dense(shape.mlp.width, shape.mlp.matrices);
    builder.tensor_collectives();
  }
  return builder.take();
}

DeviceWork head_work(const ModelShape& shape, const Batch& batch) {
  Batch kept = batch;
  kept.recompute = Recompute::none;
  WorkBuilder builder(shape, kept);
  builder.residual_and_norm(2 * static_cast<int>(shape.layers.size()));
  builder.keep_input();
  builder.tensor_collectives();
  builder.products(head_weights(shape));
  builder.loss();
  return builder.take();
}

double device_parameters(const std::vector<Weight>& weights, const Degrees& degrees) {
  double sum = 0;
  for (const Weight& weight : weights) {
    const double split = weight.spread == Spread::experts      ? degrees.ep
                         : weight.spread == Spread::replicated ? 1
                                                               : degrees.tp;
    sum += static_cast<double>(weight.parameters()) / split;
  }
  return sum;
}

void require_divides(const ModelShape& shape, const Batch& batch) {
  const auto [tp, ep, dp] = batch.degrees;
  for (const auto& [flag, degree] : {std::pair{"--tp", tp}, {"--ep", ep}, {"--dp", dp}}) {
    if (degree < 1 || degree > 1 << 16) {
      throw InputError(fmt::format("{} is {}, legal are 1 to {}", flag, degree, 1 << 16));
    }
  }
  if (batch.tokens < 1 || batch.sequence < 1) {
    throw InputError(
        fmt::format("{} tokens in sequences of {}: both must be at least 1", batch.tokens, batch.sequence));
  }
  require_split("tokens of a microbatch", batch.tokens, "--tp", tp);
  if (const auto* grouped = std::get_if<GroupedAttention>(&shape.attention)) {
    require_split("attention heads", grouped->heads, "--tp", tp);
  } else {
    require_split("attention heads", std::get<LatentAttention>(shape.attention).heads, "--tp", tp);
  }
  if (shape.delta.value_heads > 0) require_split("heads of linear attention", shape.delta.value_heads, "--tp", tp);
  if (ep == 1) return;
  if (shape.experts.count == 0) {
    throw InputError(fmt::format("--ep {} needs a model with experts, {} has none", ep, shape.name));
  }
  require_split("experts", shape.experts.count, "--ep", ep);
  if (batch.degrees.gpus() % ep != 0) {
    throw InputError(
        fmt::format("--ep {} deals out experts over the devices of a stage, of which there are --tp {} x "
                    "--dp {} = {}: it must divide them",
                    ep, tp, dp, batch.degrees.gpus()));
  }
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
// Mistakes seen in other implementations of depth attention, one test each.
#include "kernels/support/random_spec.hpp"
#include "plumb/kernels/block_machine.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// A layer that records what it reads and answers with a constant.
struct Recorder final : Sublayer {
  explicit Recorder(double answer_in) : answer(answer_in) {}
  void forward(TapeId, ConstView h, View f, Keep) override {
    read.assign(elements<double>(h), elements<double>(h) + h.num_elements());
    std::fill_n(elements<double>(f), f.num_elements(), answer);
  }
  void backward(TapeId, ConstView df, View dh) override {
    df_seen.assign(elements<double>(df), elements<double>(df) + df.num_elements());
    std::fill_n(elements<double>(dh), dh.num_elements(), 0.0);
  }
  void drop(TapeId) override {}
  double answer;
  Rows<double> read;
  Rows<double> df_seen;
};

// One token of width 1 through recorders; zero queries, so that each input is a plain mean and shows what was counted.
struct Recorded {
  std::vector<double> reads;
  double head = 0;
  std::vector<double> blocks;

  Recorded(int num_sublayers, int block_length, double embedding, const std::vector<double>& answers) {
    DepthConfig config;
    config.num_sublayers = num_sublayers;
    config.block_length = block_length;
    config.width = 1;
    config.storage = Storage::fp64;
    const ChunkRange range{0, num_sublayers, true};
    DepthParameters parameters(config, range);
    std::vector<Recorder> layers;
    for (const double answer : answers) {
      layers.emplace_back(answer);
    }
    std::vector<Sublayer*> pointers;
    for (Recorder& layer : layers) {
      pointers.push_back(&layer);
    }
    BlockMachine machine(config, range, pointers, parameters);
    const void* source = &embedding;
    blocks.resize(static_cast<std::size_t>(num_blocks(config)));
    std::vector<void*> closed;
    for (double& block : blocks) {
      closed.push_back(&block);
    }
    MachineForward args;
    args.tokens = 1;
    args.sources = {&source, 1};
    args.closed = closed;
    args.head = &head;
    args.kind = ForwardKind::evaluate;
    machine.forward({}, args);
    for (const Recorder& layer : layers) {
      reads.push_back(layer.read[0]);
    }
  }
};

ModelSpec small_model(int num_sublayers, int block_length) {
  ModelSpec spec;
  spec.config.num_sublayers = num_sublayers;
  spec.config.block_length = block_length;
  spec.config.width = 5;
  spec.config.query_init = QueryInit::normal;
  spec.config.query_stddev = 0.7;
  spec.tokens = 3;
  spec.cuts = {num_sublayers};
  return spec;
}

}  // namespace

TEST_CASE("trap 1: at a block boundary no source is counted twice, nor the embedding at the first sublayers",
          "[kernels]") {
  const Recorded run(5, 2, 60, {1, 2, 4, 8, 16});
  // sublayer 0 reads b_0 alone; 1 reads b_0 and the partial; 2 opens block 2 and reads b_0, b_1 without a partial
  CHECK(run.reads[0] == 60);
  CHECK(run.reads[1] == Approx((60 + 1) / 2.0));
  CHECK(run.reads[2] == Approx((60 + 3) / 2.0));
  CHECK(run.reads[3] == Approx((60 + 3 + 4) / 3.0));
  CHECK(run.reads[4] == Approx((60 + 3 + 12) / 3.0));
  CHECK(run.blocks == std::vector<double>{3, 12, 16});
  CHECK(run.head == Approx((60 + 3 + 12 + 16) / 4.0));
}

TEST_CASE("trap 2: the key norm is never applied to the value, also not at layer 0", "[kernels]") {
  for (const double embedding : {60.0, -0.001}) {
    const Recorded run(1, 1, embedding, {1});
    CHECK(run.reads[0] == embedding);
  }
}

TEST_CASE("trap 3: a block stays as it was closed while later sublayers and the head read it", "[kernels]") {
  struct Listener final : BlockListener {
    void block_closed(std::size_t index) override { at_closing.push_back(*static_cast<double*>(slots[index])); }
    std::vector<void*> slots;
    std::vector<double> at_closing;
  };
  DepthConfig config;
  config.num_sublayers = 6;
  config.block_length = 2;
  config.width = 1;
  config.storage = Storage::fp64;
  const ChunkRange range{0, 6, true};
  DepthParameters parameters(config, range);
  std::vector<Recorder> layers(6, Recorder(1.5));
  std::vector<Sublayer*> pointers;
  for (Recorder& layer : layers) {
    pointers.push_back(&layer);
  }
  BlockMachine machine(config, range, pointers, parameters);
  std::vector<double> blocks(4, 7.0);
  Listener listener;
  listener.slots = {&blocks[1], &blocks[2], &blocks[3]};
  const void* source = blocks.data();
  double head = 0;
  MachineForward args;
  args.tokens = 1;
  args.sources = {&source, 1};
  args.closed = listener.slots;
  args.head = &head;
  args.listener = &listener;
  machine.forward({}, args);
  CHECK(listener.at_closing == std::vector<double>{3, 3, 3});
  CHECK(blocks == std::vector<double>{7, 3, 3, 3});
}

TEST_CASE("trap 4: the machine knows a block by its place, not by its address", "[kernels]") {
  // The blocks move to other memory between forward and backward, and the old memory is overwritten.
  for (const bool recompute : {false, true}) {
    ModelSpec spec = small_model(6, 2);
    spec.cuts = {3, 6};
    spec.recompute = recompute;
    const Rows<double> grad = random_rows<double>("grad", 15);
    ChunkedModel<double> still(spec);
    still.forward();
    still.backward(grad);
    ChunkedModel<double> moved(spec);
    moved.forward();
    const auto old_blocks = std::move(moved.blocks);
    moved.blocks = old_blocks;
    const Rows<double> old_partial = std::move(moved.partials[0]);
    moved.partials[0] = old_partial;
    for (const Rows<double>& block : old_blocks) {
      std::fill_n(const_cast<double*>(block.data()), block.size(), std::nan(""));
    }
    moved.backward(grad);
    for (const auto& [name, gradient] : still.gradients()) {
      CHECK(same_bits(moved.gradients().at(name), gradient));
    }
  }
}

TEST_CASE("trap 5: empty chunks pass a partial on and a head-only last chunk reads every block", "[kernels]") {
  ModelSpec spec = small_model(5, 3);
  ChunkedModel<double> whole(spec);
  spec.cuts = {0, 2, 2, 2, 5, 5};
  ChunkedModel<double> cut(spec);
  const Rows<double> grad = random_rows<double>("grad", 15);
  for (ChunkedModel<double>* model : {&whole, &cut}) {
    model->forward();
    model->backward(grad);
  }
  CHECK(same_bits(cut.head, whole.head));
  CHECK(same_bits(cut.partials[2], cut.partials[1]));
  CHECK(cut.machines.back()->depth().num_sources == 3);
  for (const auto& [name, gradient] : whole.gradients()) {
    CHECK(relative_difference(cut.gradients().at(name), gradient) < 1e-12);
  }
}

TEST_CASE("trap 6: a forward-only pass keeps nothing and gives the bits of training", "[kernels]") {
  for (const bool recompute : {false, true}) {
    ModelSpec spec = small_model(7, 3);
    spec.cuts = {2, 7};
    spec.recompute = recompute;
    ChunkedModel<float> model(spec);
    model.forward({}, ForwardKind::evaluate);
    const Rows<float> evaluated = model.head;
    for (const auto& machine : model.machines) {
      CHECK(machine->num_tapes() == 0);
    }
    for (const auto& sublayer : model.sublayers) {
      CHECK(sublayer->num_kept() == 0);
    }
    model.forward(TapeId{3});
    CHECK(same_bits(model.head, evaluated));
    model.forward(TapeId{3}, ForwardKind::evaluate);  // beside a tape in flight
    CHECK(model.machines[0]->num_tapes() == 1);
    for (const auto& sublayer : model.sublayers) {
      CHECK(sublayer->num_kept() == (recompute ? 0U : 1U));
    }
    model.backward(random_rows<float>("grad", 15), {}, TapeId{3});
  }
}

TEST_CASE("trap 7: every accumulator receives exactly one contribution of the chunk", "[kernels]") {
  // The same chunk with empty and with filled accumulators: the difference is what was there, once.
  ModelSpec spec = small_model(8, 2);
  ChunkedModel<double> model(spec);
  const Rows<double> grad = random_rows<double>("grad", 15);
  model.forward();
  model.backward(grad);
  const Rows<double> alone = model.block_gradients[0];
  std::vector<Rows<double>> arrived(model.blocks.size(), zeros<double>(15));
  arrived[0] = random_rows<double>("arrived", 15);
  model.forward();
  model.backward(grad, arrived);
  for (std::size_t i = 0; i < 15; ++i) {
    CHECK(model.block_gradients[0][i] - arrived[0][i] == Approx(alone[i]).epsilon(1e-12).margin(1e-13));
  }
  // An empty chunk contributes nothing, and says so in numbers when the accumulator is fresh.
  spec.cuts = {8, 8};
  spec.config.head_aggregate = false;
  ChunkedModel<double> headless(spec);
  headless.forward();
  headless.backward({});
  CHECK(same_bits(headless.block_gradients[4], zeros<double>(15)));
}

TEST_CASE("trap 11: frozen layers still pass gradients to their sources", "[kernels]") {
  ModelSpec spec = small_model(6, 2);
  spec.cuts = {3, 6};
  const Rows<double> grad = random_rows<double>("grad", 15);
  ChunkedModel<double> trained(spec);
  ChunkedModel<double> frozen(spec);
  for (const auto& sublayer : frozen.sublayers) {
    sublayer->frozen = true;
  }
  for (ChunkedModel<double>* model : {&trained, &frozen}) {
    model->forward();
    model->backward(grad);
  }
  for (std::size_t n = 0; n < trained.block_gradients.size(); ++n) {
    CHECK(same_bits(frozen.block_gradients[n], trained.block_gradients[n]));
  }
  for (const auto& [name, gradient] : frozen.gradients()) {
    if (name.starts_with("weight.")) {
      CHECK(same_bits(gradient, zeros<double>(25)));
    } else {
      CHECK(same_bits(gradient, trained.gradients().at(name)));
    }
  }
}

TEST_CASE("trap 13: a recomputation writes no block and no partial and tells nobody", "[kernels]") {
  ModelSpec spec = small_model(7, 3);
  spec.cuts = {5, 7};
  spec.recompute = true;
  ChunkedModel<double> model(spec);
  model.forward();
  const auto blocks = model.blocks;
  const auto partials = model.partials;
  model.backward(random_rows<double>("grad", 15));
  for (std::size_t n = 0; n < blocks.size(); ++n) {
    CHECK(same_bits(model.blocks[n], blocks[n]));
  }
  CHECK(same_bits(model.partials[0], partials[0]));
  for (const auto& sublayer : model.sublayers) {
    CHECK(sublayer->num_forwards == 2);
  }
}

TEST_CASE("trap 15: block lengths count sublayers, two to a decoder layer", "[kernels]") {
  DepthConfig config;
  config.width = 1;
  config.num_sublayers = 2 * 93;
  config.block_length = 2 * 12;
  CHECK(num_blocks(config) == 8);
  CHECK(chunk_depth(config, {0, 186, true}).num_closed == 8);
  CHECK(chunk_depth(config, {186, 0, true}).num_sources == 9);
  CHECK(chunk_depth(config, {0, 24, false}).num_closed == 1);
  config.num_sublayers = 54;
  config.block_length = 6;
  CHECK(num_blocks(config) == 9);
}

TEST_CASE("trap 16: a short last block, one block only and one sublayer per block", "[kernels]") {
  const Recorded short_last(4, 3, 10, {1, 1, 1, 5});
  CHECK(short_last.blocks == std::vector<double>{3, 5});
  CHECK(short_last.reads[3] == Approx((10 + 3) / 2.0));
  CHECK(short_last.head == Approx((10 + 3 + 5) / 3.0));

  const Recorded one_block(3, 3, 10, {1, 2, 4});
  CHECK(one_block.blocks == std::vector<double>{7});
  CHECK(one_block.reads[2] == Approx((10 + 3) / 2.0));
  CHECK(one_block.head == Approx((10 + 7) / 2.0));

  const Recorded every_sublayer(3, 1, 10, {1, 2, 4});
  CHECK(every_sublayer.blocks == std::vector<double>{1, 2, 4});
  CHECK(every_sublayer.reads[2] == Approx((10 + 1 + 2) / 3.0));
  CHECK(every_sublayer.head == Approx((10 + 1 + 2 + 4) / 4.0));
}

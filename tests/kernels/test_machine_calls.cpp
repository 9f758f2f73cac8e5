// SPDX-License-Identifier: Apache-2.0
// The contract of the machine's calls: what is refused, what is told, kept, dropped and allocated.
#include <optional>
#include <stdexcept>

#include "kernels/support/allocation_count.hpp"
#include "kernels/support/chunked_model.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// f = h / 2, without any memory of its own.
class Halver final : public Sublayer {
 public:
  void forward(TapeId, ConstView h, View f, Keep) override { halve(h, f); }
  void backward(TapeId, ConstView df, View dh) override { halve(df, dh); }
  void drop(TapeId) override { ++num_drops; }
  int num_drops = 0;

 private:
  static void halve(const ConstView& in, const View& out) {
    for (std::int64_t i = 0; i < in.num_elements(); ++i) {
      elements<float>(out)[i] = elements<float>(in)[i] / 2;
    }
  }
};

// Blocks of 3; the chunk holds sublayers 2..6: it ends block 1, makes block 2, opens block 3.
struct Middle {
  explicit Middle(bool recompute = false) : parameters(config(), range) {
    MachineOptions options;
    options.recompute = recompute;
    machine.emplace(config(), range, std::vector<Sublayer*>(5, &layer), parameters, options);
  }

  static DepthConfig config() {
    DepthConfig out;
    out.num_sublayers = 11;
    out.block_length = 3;
    out.width = 4;
    return out;
  }

  MachineForward forward_args(std::int64_t tokens = 2) {
    MachineForward args;
    args.tokens = tokens;
    args.sources = sources;
    args.partial_in = memory[1].data();
    args.closed = closed_out;
    args.partial_out = memory[4].data();
    return args;
  }

  MachineBackward backward_args() {
    MachineBackward args;
    args.sources = sources;
    args.partial_in = memory[1].data();
    args.closed = closed_in;
    args.grad_partial_out = memory[5].data();
    args.grad_closed = grad_closed;
    args.grad_sources = grad_sources;
    args.grad_partial_in = memory[9].data();
    return args;
  }

  ChunkRange range{2, 5, false};
  Halver layer;
  DepthParameters parameters;
  std::vector<Rows<float>> memory{10, random_rows<float>("middle", 4 * 64)};
  std::vector<const void*> sources{memory[0].data()};
  std::vector<void*> closed_out{memory[2].data(), memory[3].data()};
  std::vector<const void*> closed_in{memory[2].data(), memory[3].data()};
  std::vector<BlockGradient> grad_closed{{memory[6].data(), true}, {memory[7].data(), true}};
  std::vector<BlockGradient> grad_sources{{memory[8].data(), true}};
  std::optional<BlockMachine> machine;
};

template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("after the first use of a number of tapes and tokens nothing is allocated", "[kernels]") {
  for (const bool recompute : {false, true}) {
    Middle middle(recompute);
    const auto step = [&](std::int64_t tokens) {
      for (int k = 0; k < 3; ++k) {
        middle.machine->forward(TapeId{k}, middle.forward_args(tokens));
      }
      for (int k = 0; k < 2; ++k) {
        middle.machine->backward(TapeId{k}, middle.backward_args());
      }
      middle.machine->backward_input(TapeId{2}, middle.backward_args());
      middle.machine->backward_weight(TapeId{2});
      middle.machine->forward(TapeId{3}, middle.forward_args(tokens));
      middle.machine->drop(TapeId{3});
      MachineForward args = middle.forward_args(tokens);
      args.kind = ForwardKind::evaluate;
      middle.machine->forward(TapeId{}, args);
    };
    const std::int64_t before_any = num_allocations();
    step(50);
    const std::int64_t before = num_allocations();
    CHECK(before > before_any);
    step(50);
    step(7);
    step(50);
    CHECK(num_allocations() == before);
  }
}

TEST_CASE("operands that do not fit the chunk are refused with one line", "[kernels]") {
  Middle middle;
  const auto forward = [&](auto change) {
    return refusal([&] {
      MachineForward args = middle.forward_args();
      change(args);
      middle.machine->forward(TapeId{1}, args);
    });
  };
  CHECK(forward([](MachineForward& a) { a.tokens = 0; }) ==
        "block machine, sublayers 2..6, forward: number of tokens is 0; legal: 1 or more");
  CHECK(forward([](MachineForward& a) { a.sources = {}; }).ends_with("sources: 1 expected, got 0"));
  CHECK(forward([](MachineForward& a) { a.closed = a.closed.first(1); }).ends_with("closed blocks: 2 expected, got 1"));
  CHECK(forward([](MachineForward& a) {
          a.partial_in = nullptr;
        }).ends_with("partial_in is null, but this chunk needs it"));
  CHECK(forward([](MachineForward& a) {
          a.partial_out = nullptr;
        }).ends_with("partial_out is null, but this chunk needs it"));
  CHECK(forward([](MachineForward& a) {
          a.head = a.partial_out;
        }).ends_with("head is given, but this chunk has none; legal: null"));
  CHECK(middle.machine->num_tapes() == 0);
  CHECK(forward([](MachineForward&) {}).empty());

  const auto backward = [&](auto change) {
    return refusal([&] {
      MachineBackward args = middle.backward_args();
      change(args);
      middle.machine->backward(TapeId{1}, args);
    });
  };
  CHECK(backward([](MachineBackward& a) { a.grad_sources = {}; }).ends_with("gradients of sources: 1 expected, got 0"));
  CHECK(backward([](MachineBackward& a) {
          a.grad_closed = a.grad_closed.first(1);
        }).ends_with("gradients of closed blocks: 2 expected, got 1"));
  CHECK(backward([](MachineBackward& a) {
          a.grad_partial_out = nullptr;
        }).ends_with("grad_partial_out is null, but this chunk needs it"));
  CHECK(backward([](MachineBackward& a) {
          a.grad_partial_in = nullptr;
        }).ends_with("grad_partial_in is null, but this chunk needs it"));
  CHECK(backward([](MachineBackward& a) { a.grad_head = a.partial_in; }).ends_with("legal: null"));
  middle.grad_closed[1].sum = nullptr;
  CHECK(backward([](MachineBackward&) {}).ends_with("grad_closed[1] is null"));
  middle.grad_closed[1].sum = middle.memory[7].data();
  middle.closed_in[1] = nullptr;  // sublayer 6 reads block 2
  CHECK(backward([](MachineBackward&) {}).ends_with("closed[1] is null"));
  CHECK(middle.machine->num_tapes() == 1);
}

TEST_CASE("a closed block that nothing later in the chunk reads may be gone before the backward", "[kernels]") {
  for (const bool recompute : {false, true}) {
    DepthConfig config = Middle::config();
    const ChunkRange range{0, 3, false};
    DepthParameters parameters(config, range);
    Halver layer;
    MachineOptions options;
    options.recompute = recompute;
    BlockMachine machine(config, range, std::vector<Sublayer*>(3, &layer), parameters, options);
    const Rows<float> embedding = random_rows<float>("embedding", 4);
    Rows<float> block = poison<float>(4);
    const void* source = embedding.data();
    void* closed_out = block.data();
    MachineForward forward;
    forward.tokens = 1;
    forward.sources = {&source, 1};
    forward.closed = {&closed_out, 1};
    machine.forward({}, forward);
    const void* gone = nullptr;
    Rows<float> grad_block = random_rows<float>("grad block", 4);
    Rows<float> grad_embedding = poison<float>(4);
    const BlockGradient grad_closed{grad_block.data(), false};
    const BlockGradient grad_source{grad_embedding.data(), true};
    MachineBackward backward;
    backward.sources = {&source, 1};
    backward.closed = {&gone, 1};
    backward.grad_closed = {&grad_closed, 1};
    backward.grad_sources = {&grad_source, 1};
    machine.backward({}, backward);
    CHECK(same_bits(grad_block, random_rows<float>("grad block", 4)));
    for (const float value : grad_embedding) {
      CHECK(std::isfinite(value));
    }
  }
}

TEST_CASE("tapes out of order are refused", "[kernels]") {
  Middle middle;
  BlockMachine& machine = *middle.machine;
  const auto with = [&](auto call) { return refusal([&] { call(); }); };
  CHECK(with([&] {
          machine.backward(TapeId{4}, middle.backward_args());
        }).ends_with("backward: tape 4 is not in flight"));
  machine.forward(TapeId{4}, middle.forward_args());
  CHECK(with([&] { machine.forward(TapeId{4}, middle.forward_args()); }).ends_with("tape 4 is already in flight"));
  CHECK(with([&] { machine.backward_weight(TapeId{4}); }).ends_with("tape 4 has had no backward_input yet"));
  machine.backward_input(TapeId{4}, middle.backward_args());
  CHECK(with([&] {
          machine.backward(TapeId{4}, middle.backward_args());
        }).ends_with("tape 4 awaits backward_weight only"));
  machine.backward_weight(TapeId{4});
  CHECK(with([&] { machine.backward_weight(TapeId{4}); }).ends_with("tape 4 is not in flight"));

  machine.forward(TapeId{5}, middle.forward_args());
  machine.drop(TapeId{5});
  CHECK(middle.layer.num_drops == 5);
  machine.drop(TapeId{5});
  CHECK(middle.layer.num_drops == 5);
  CHECK(machine.num_tapes() == 0);
}

TEST_CASE("a machine is refused when its parts do not belong together", "[kernels]") {
  Middle middle;
  const DepthConfig config = Middle::config();
  const std::vector<Sublayer*> five(5, &middle.layer);
  const auto made = [&](const DepthConfig& c, const ChunkRange& r, std::vector<Sublayer*> s, int query_batch = 8) {
    return refusal([&] { BlockMachine(c, r, std::move(s), middle.parameters, {.query_batch = query_batch}); });
  };
  CHECK(made(config, middle.range, five).empty());
  CHECK(made(config, middle.range, {&middle.layer}).ends_with("one sublayer object each expected, 5, got 1"));
  CHECK(made(config, middle.range, std::vector<Sublayer*>(5)).ends_with("a sublayer is null"));
  CHECK(
      made(config, {3, 5, false}, five).ends_with("the depth parameters were made for another configuration or chunk"));
  CHECK(made(config, middle.range, five, 0).ends_with("query batch is 0; legal: 1 or more"));
  DepthConfig bad = config;
  bad.block_length = 0;
  CHECK(made(bad, middle.range, five).starts_with("depth configuration: block length"));
  bad = config;
  bad.mode = static_cast<DepthMode>(3);
  CHECK(made(bad, middle.range, five).starts_with("depth configuration: mode"));
}

TEST_CASE("a sublayer that throws leaves no tape behind", "[kernels]") {
  struct Thrower final : Sublayer {
    void forward(TapeId, ConstView, View, Keep) override { throw std::runtime_error("host"); }
    void backward(TapeId, ConstView, View) override {}
    void drop(TapeId) override { ++num_drops; }
    int num_drops = 0;
  };
  DepthConfig config;
  config.num_sublayers = 1;
  config.width = 1;
  config.head_aggregate = false;
  DepthParameters parameters(config, {0, 1, true});
  Thrower layer;
  BlockMachine machine(config, {0, 1, true}, {&layer}, parameters);
  float value = 1;
  float block = 0;
  const void* source = &value;
  void* closed = &block;
  MachineForward args;
  args.tokens = 1;
  args.sources = {&source, 1};
  args.closed = {&closed, 1};
  CHECK_THROWS_AS(machine.forward(TapeId{}, args), std::runtime_error);
  CHECK(machine.num_tapes() == 0);
  CHECK(layer.num_drops == 1);
}

TEST_CASE("a closed block is announced in mid-chunk, complete, once", "[kernels]") {
  struct Listener final : BlockListener {
    explicit Listener(Middle& m) : middle(m) {}
    void block_closed(std::size_t index) override {
      seen.push_back(index);
      contents.push_back(middle.memory[2 + index]);
      later_untouched = later_untouched && std::isnan(middle.memory[4][0]);
    }
    Middle& middle;
    std::vector<std::size_t> seen;
    std::vector<Rows<float>> contents;
    bool later_untouched = true;
  };
  for (const bool recompute : {false, true}) {
    Middle middle(recompute);
    for (std::size_t i = 2; i <= 4; ++i) {
      middle.memory[i] = poison<float>(4 * 64);
    }
    middle.closed_out = {middle.memory[2].data(), middle.memory[3].data()};
    middle.closed_in = {middle.memory[2].data(), middle.memory[3].data()};
    Listener listener(middle);
    MachineForward args = middle.forward_args(64);
    args.listener = &listener;
    middle.machine->forward(TapeId{}, args);
    middle.machine->backward(TapeId{}, middle.backward_args());
    CHECK(listener.seen == std::vector<std::size_t>{0, 1});
    CHECK(same_bits(listener.contents[0], middle.memory[2]));
    CHECK(same_bits(listener.contents[1], middle.memory[3]));
    CHECK(listener.later_untouched);
  }
}

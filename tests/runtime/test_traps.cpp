// SPDX-License-Identifier: Apache-2.0
//
// What others fell into, one test each; the names say what must not happen.
#include <cstring>
#include <map>
#include <set>

#include "cache/support/programs.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/cache/volume.hpp"
#include "plumb/runtime/interpreter.hpp"
#include "plumb/schedule/generators.hpp"
#include "runtime/support/inproc_ranks.hpp"
#include "runtime/support/integer_host.hpp"
#include "runtime/support/model_host.hpp"
#include "runtime/support/recording_transport.hpp"
#include "runtime/support/watched_stage.hpp"
#include "support/catch.hpp"

namespace plumb::test {
namespace {

struct IntegerRun {
  explicit IntegerRun(const Program& program, IntegerHostOptions options = {})
      : model(program.depth, 2, 4), host(model, program.depth, program.layout.microbatches(), Storage::fp64, options) {}
  IntegerModel model;
  IntegerHost host;
};

bool equal_bits(const ConstView& view, const Row& copy) {
  return std::memcmp(view.data, copy.data(), copy.size() * sizeof(double)) == 0;
}

Row copy_of(const ConstView& view) { return Row(elements<double>(view), elements<double>(view) + view.num_elements()); }

ProgramPtr interleaved_program(const DepthMap& depth, int pp, int microbatches, Policy policy = Policy::cached,
                               bool forward_only = false) {
  const Layout layout(pp, depth.num_chunks() / pp, microbatches);
  return share(lower(interleaved(layout, default_group(layout), forward_only), depth, policy));
}

void check_integer_gradients(const ProgramPtr& program) {
  INFO(describe(*program));
  IntegerRun run(*program);
  interpret_single_thread(program, run.host.stages(), run.host.shape(), {.poison = Poison::always});
  CHECK(run.host.gradients() == run.model.reference(program->layout.microbatches()));
}

}  // namespace

TEST_CASE("trap: a source handed out twice, or b_0 twice at the first sublayer", "[runtime]") {
  const ProgramPtr program = share(small_program(Policy::cached));
  IntegerRun run(*program);
  Spectator spectator;
  spectator.before_forward = [&](ChunkId chunk, const StageForward& args) {
    int expected = 0;
    for (const BlockValue& source : args.sources)
      CHECK(source.block.value == expected++);
    for (const BlockOutput& output : args.closed)
      CHECK(output.block.value == expected++);
    CHECK((chunk.value == 0) == args.sources.empty());
  };
  const WatchedStages watched(run.host.stages(), spectator);
  interpret_single_thread(program, watched.table(), run.host.shape());
}

TEST_CASE("trap: a block's buffer reused while later sublayers or the head still read it", "[runtime]") {
  Dice dice(41);
  for (int i = 0; i < 40; ++i) {
    const ProgramPtr program = share(random_program(dice, {.pp = 4, .vp = 3, .sublayers = 12, .microbatches = 6}));
    INFO(describe(*program));
    IntegerRun run(*program);
    std::map<std::pair<Microbatch, BlockId>, Row> closed;
    std::map<std::pair<Microbatch, ChunkId>, Row> partials;
    int num_changed = 0;
    const auto check = [&](Microbatch m, std::span<const BlockValue> values) {
      for (const BlockValue& value : values)
        num_changed += equal_bits(value.value, closed.at({m, value.block})) ? 0 : 1;
    };
    Spectator spectator;
    spectator.before_forward = [&](ChunkId chunk, const StageForward& args) {
      check(args.microbatch, args.sources);
      if (args.partial_in.data == nullptr) return;
      num_changed += equal_bits(args.partial_in, partials.at({args.microbatch, chunk.previous()})) ? 0 : 1;
    };
    spectator.after_forward = [&](ChunkId chunk, const StageForward& args) {
      for (const BlockOutput& output : args.closed)
        closed[{args.microbatch, output.block}] = copy_of(output.value);
      if (args.partial_out.data != nullptr) partials[{args.microbatch, chunk}] = copy_of(args.partial_out);
    };
    spectator.before_backward = [&](ChunkId chunk, const StageBackward& args) {
      check(args.microbatch, args.sources);
      check(args.microbatch, args.closed);
      if (args.partial_in.data == nullptr) return;
      num_changed += equal_bits(args.partial_in, partials.at({args.microbatch, chunk.previous()})) ? 0 : 1;
    };
    const WatchedStages watched(run.host.stages(), spectator);
    interpret_single_thread(program, watched.table(), run.host.shape(), {.poison = Poison::always});
    CHECK(num_changed == 0);
  }
}

TEST_CASE("trap: a cache keyed by tensor identity", "[runtime]") {
  const ProgramPtr program = share(small_program(Policy::cached));
  IntegerRun run(*program);
  Interpreter* interpreter = nullptr;
  std::map<const void*, std::set<std::pair<Microbatch, BlockId>>> meanings;
  Spectator spectator;
  spectator.before_backward = [&](ChunkId chunk, const StageBackward& args) {
    for (const BlockValue& source : args.sources) {
      const HoldingId id = program->routing.holding_for(source.block, chunk, program->layout);
      const VirtualStage stage = program->layout.virtual_stage_of(program->routing.holdings[id.index()].bringer);
      const BlockStore& store = interpreter->store(program->layout.rank_of(chunk));
      const auto found = store.find(args.microbatch, stage, source.block);
      REQUIRE(found);
      CHECK(found->data == source.value.data);
      CHECK_FALSE(store.find(Microbatch{args.microbatch.value + 8}, stage, source.block));
      meanings[source.value.data].insert({args.microbatch, source.block});
    }
  };
  const WatchedStages watched(run.host.stages(), spectator);
  Interpreter made(watched.table(), {.poison = Poison::always});
  interpreter = &made;
  made.run(made.prepare(program, run.host.shape()));
  CHECK(run.host.gradients() == run.model.reference(8));
  // The same address meant many things in turn.
  const auto reused = [](const auto& entry) { return entry.second.size() > 1; };
  CHECK(std::any_of(meanings.begin(), meanings.end(), reused));
}

TEST_CASE("trap: empty hops, empty chunks and a last chunk with nothing but the head", "[runtime]") {
  for (const Policy policy : block_policies) {
    check_integer_gradients(interleaved_program(DepthMap(8, 2, {2, 2, 2, 6, 8, 8}), 3, 6, policy));
    check_integer_gradients(interleaved_program(DepthMap(8, 3, {0, 0, 4, 4, 8, 8}), 3, 3, policy));
    check_integer_gradients(interleaved_program(DepthMap(8, 8, {0, 5, 5, 5, 5, 8}), 3, 3, policy));
    check_integer_gradients(interleaved_program(DepthMap(4, 2, {4, 4, 4, 4}), 4, 5, policy));
  }
  check_integer_gradients(
      interleaved_program(DepthMap(4, 4, {0, 4, 4, 4}, Residual::standard), 4, 4, Policy::standard));
}

TEST_CASE("trap: a forward-only pass that waits for, keeps or counts what a backward would", "[runtime]") {
  const DepthMap depth(16, 3, DepthMap::even_cuts(16, 16, 8));
  const ProgramPtr evaluation = interleaved_program(depth, 4, 16, Policy::cached, true);
  const ProgramPtr training = interleaved_program(depth, 4, 16);
  IntegerRun run(*evaluation);
  Spectator spectator;
  spectator.before_forward = [](ChunkId, const StageForward& args) {
    must(args.mode == ForwardMode::evaluate, "an evaluation");
  };
  spectator.before_backward = [](ChunkId, const StageBackward&) { must(false, "no backward in an evaluation"); };
  const WatchedStages watched(run.host.stages(), spectator);
  std::int64_t num_contributions = 0;
  for (const StepResult& result : run_on_threads(evaluation, watched.table(), run.host.shape())) {
    num_contributions += result.num_contributions;
    CHECK(result.received.backward_bytes == 0);
  }
  CHECK(num_contributions == 0);
  CHECK(run.host.gradients().losses == run.model.reference(16).losses);
  for (std::size_t r = 0; r < evaluation->ranks.size(); ++r) {
    CHECK(evaluation->ranks[r].num_gradient_slots == 0);
    CHECK(evaluation->ranks[r].num_value_slots < training->ranks[r].num_value_slots);
  }
}

TEST_CASE("trap: lost or doubled contributions and traffic counted twice", "[runtime]") {
  Dice dice(42);
  for (int i = 0; i < 20; ++i) {
    const ProgramPtr program = share(random_program(dice, {.pp = 4, .vp = 3, .sublayers = 12, .microbatches = 6}));
    INFO(describe(*program));
    IntegerRun run(*program);
    std::int64_t expected = 0;
    for (const Holding& holding : program->routing.holdings)
      expected += holding.num_contributions();
    expected *= program->forward_only ? 0 : program->layout.microbatches();
    std::int64_t counted = 0;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t num_messages = 0;
    for (const StepResult& result : run_on_threads(program, run.host.stages(), run.host.shape())) {
      counted += result.num_contributions;
      sent += result.sent.total_bytes();
      received += result.received.total_bytes();
      num_messages += result.received.num_messages;
    }
    CHECK(counted == expected);
    CHECK(sent == received);
    CHECK(num_messages == program->messages.size());
  }
}

TEST_CASE("trap: gradient buffers that are not contiguous or overlap", "[runtime]") {
  const ProgramPtr program = share(small_program(Policy::cached));
  IntegerRun run(*program);
  const std::size_t size_bytes = run.host.shape().gradient_bytes();
  Spectator spectator;
  spectator.before_backward = [&](ChunkId, const StageBackward& args) {
    std::set<std::uintptr_t> starts;
    const auto note = [&](const ConstView& view) {
      if (view.data == nullptr) return;
      CHECK(view.num_elements() == 8);
      CHECK(reinterpret_cast<std::uintptr_t>(view.data) % 64 == 0);
      CHECK(starts.insert(reinterpret_cast<std::uintptr_t>(view.data)).second);
    };
    for (const BlockValue& value : args.sources)
      note(value.value);
    for (const BlockValue& value : args.closed)
      note(value.value);
    for (const BlockSum& sum : args.grad_sources)
      note(sum.sum);
    for (const BlockSum& sum : args.grad_closed)
      note(sum.sum);
    note(args.partial_in);
    note(args.grad_partial_in);
    note(args.grad_partial_out);
    for (auto start = starts.begin(); start != starts.end() && std::next(start) != starts.end(); ++start) {
      CHECK(*std::next(start) - *start >= size_bytes);
    }
  };
  const WatchedStages watched(run.host.stages(), spectator);
  interpret_single_thread(program, watched.table(), run.host.shape());
}

TEST_CASE("trap: metadata on the data channels, padding, and messages for empty hops", "[runtime]") {
  for (const Policy policy : block_policies) {
    INFO(to_string(policy));
    const ProgramPtr program = interleaved_program(DepthMap(14, 3, {2, 2, 5, 9, 9, 14}), 3, 6, policy);
    IntegerRun run(*program);
    std::vector<int> num_odd(3);
    on_all_ranks(3, [&](const RankPlace& place) {
      RecordingTransport transport(place.transport);
      Executor executor(place.rank, run.host.stages(), &transport, &place.control);
      executor.run(executor.prepare(program, run.host.shape()));
      std::multiset<std::size_t> expected;
      for (const CommStep& step : program->ranks[place.rank.index()].comm) {
        if (step.kind == CommKind::send) expected.insert(static_cast<std::size_t>(program->units(step.message)));
      }
      std::multiset<std::size_t> posted;
      for (const auto& message : transport.sent) {
        posted.insert(message.size());
        for (const std::size_t bytes : message) {
          num_odd[place.rank.index()] += bytes == run.host.shape().value_bytes() ? 0 : 1;
        }
      }
      num_odd[place.rank.index()] += posted == expected ? 0 : 1;
      num_odd[place.rank.index()] += posted.count(0) > 0 ? 1 : 0;
    });
    CHECK(num_odd == std::vector<int>(3, 0));
  }
}

TEST_CASE("trap: frozen producers that stop gradients or messages", "[runtime]") {
  const ProgramPtr program = share(small_program(Policy::cached));
  const ModelOptions options;
  ModelHost all(program->depth, options);
  const auto expected_results = run_on_threads(program, all.stages(), all.shape());
  ModelHost partly(program->depth, options);
  for (const int sublayer : {0, 5, 12, 13, 14, 15, 31})
    partly.freeze(sublayer);
  const auto results = run_on_threads(program, partly.stages(), partly.shape());
  auto expected = all.gradients();
  for (const int sublayer : {0, 5, 12, 13, 14, 15, 31}) {
    for (double& value : expected["weight." + std::to_string(sublayer)])
      value = 0;
  }
  CHECK(partly.gradients() == expected);
  for (std::size_t r = 0; r < results.size(); ++r) {
    CHECK(results[r].received == expected_results[r].received);
    CHECK(results[r].num_contributions == expected_results[r].num_contributions);
  }
  // A closer that drops a sum does so after all its contributions were counted.
  IntegerRun frozen(*program, {.frozen_embedding = true});
  run_on_threads(program, frozen.host.stages(), frozen.host.shape());
  auto reference = frozen.model.reference(8);
  reference.embedding.assign(reference.embedding.size(), 0.0);
  CHECK(frozen.host.gradients() == reference);
}

TEST_CASE("trap: sources copied together instead of referred to", "[runtime]") {
  const ProgramPtr program = share(small_program(Policy::cached));
  IntegerRun run(*program);
  // [rank, microbatch, block]: where it was read
  std::map<std::tuple<RankId, Microbatch, BlockId>, std::set<const void*>> places;
  Spectator spectator;
  spectator.before_forward = [&](ChunkId chunk, const StageForward& args) {
    for (const BlockValue& source : args.sources) {
      places[{program->layout.rank_of(chunk), args.microbatch, source.block}].insert(source.value.data);
    }
  };
  const WatchedStages watched(run.host.stages(), spectator);
  interpret_single_thread(program, watched.table(), run.host.shape());
  for (const auto& [what, addresses] : places)
    CHECK(addresses.size() == 1);
}

TEST_CASE("trap: recomputation that enters the cache again", "[runtime]") {
  for (const Policy policy : block_policies) {
    INFO(to_string(policy));
    const ProgramPtr program = share(small_program(policy));
    ModelOptions options;
    ModelHost keeping(program->depth, options);
    const auto expected = run_on_threads(program, keeping.stages(), keeping.shape());
    options.recompute = true;
    ModelHost recomputing(program->depth, options);
    int num_rewritten = 0;
    std::map<std::pair<Microbatch, BlockId>, Row> closed;
    Spectator spectator;
    spectator.after_forward = [&](ChunkId, const StageForward& args) {
      for (const BlockOutput& output : args.closed)
        closed[{args.microbatch, output.block}] = copy_of(output.value);
    };
    spectator.before_backward = [&](ChunkId, const StageBackward& args) {
      for (const BlockValue& value : args.closed) {
        num_rewritten += equal_bits(value.value, closed.at({args.microbatch, value.block})) ? 0 : 1;
      }
    };
    const WatchedStages watched(recomputing.stages(), spectator);
    const auto results = interpret_single_thread(program, watched.table(), recomputing.shape());
    CHECK(num_rewritten == 0);
    CHECK(recomputing.gradients() == keeping.gradients());
    for (int l = 0; l < program->depth.sublayers(); ++l)
      CHECK(recomputing.num_forwards(l) == 16);
    for (std::size_t r = 0; r < results.size(); ++r) {
      CHECK(results[r].received == expected[r].received);
      CHECK(results[r].num_contributions == expected[r].num_contributions);
    }
  }
}

TEST_CASE("trap: receive buffers of all microbatches at once, and sends pinned to the end of the step", "[runtime]") {
  const DepthMap depth(32, 6, DepthMap::even_cuts(32, 32, 8));
  for (const Policy policy : block_policies) {
    INFO(to_string(policy));
    std::vector<std::size_t> bytes[2];
    for (const int rounds : {0, 1}) {
      const ProgramPtr program = interleaved_program(depth, 4, rounds == 0 ? 24 : 96, policy);
      IntegerRun run(*program);
      bytes[rounds].resize(4);
      on_all_ranks(4, [&](const RankPlace& place) {
        Executor executor(place.rank, run.host.stages(), &place.transport, &place.control);
        executor.run(executor.prepare(program, run.host.shape()));
        bytes[rounds][place.rank.index()] = executor.store().allocated_bytes();
      });
    }
    // A longer step needs no more room than a shorter one.
    for (std::size_t r = 0; r < 4; ++r)
      CHECK(bytes[1][r] <= bytes[0][r] * 5 / 4);
  }
}

TEST_CASE("trap: a short last block, one block, blocks of one sublayer, more or fewer blocks than chunks",
          "[runtime]") {
  for (const Policy policy : block_policies) {
    for (const int block : {1, 2, 5, 7, 11, 12}) {
      check_integer_gradients(interleaved_program(DepthMap(12, block, DepthMap::even_cuts(12, 12, 6)), 3, 6, policy));
      check_integer_gradients(interleaved_program(DepthMap(12, block, {1, 1, 7, 12}), 2, 4, policy));
      check_integer_gradients(interleaved_program(DepthMap(12, block, {12}), 1, 2, policy));
    }
  }
}

}  // namespace plumb::test

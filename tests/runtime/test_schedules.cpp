// SPDX-License-Identifier: Apache-2.0
//
// Every schedule that has a name, run: gradients, bytes, and what becomes of a backward in two halves.
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "plumb/cache/volume.hpp"
#include "plumb/runtime/interpreter.hpp"
#include "runtime/support/inproc_ranks.hpp"
#include "runtime/support/integer_host.hpp"
#include "runtime/support/model_host.hpp"
#include "runtime/support/named_programs.hpp"
#include "runtime/support/watched_stage.hpp"
#include "support/catch.hpp"

namespace plumb::test {
namespace {

constexpr double rounding_tolerance = 1e-12;
constexpr Limits small_limits{.pp = 4, .vp = 3, .sublayers = 14, .microbatches = 8};

std::vector<ScheduleKind> all_kinds() { return {all_schedule_kinds().begin(), all_schedule_kinds().end()}; }

void check_bytes(const Program& program, const SlotShape& shape, const std::vector<StepResult>& results) {
  std::uint64_t forward_bytes = 0;
  std::uint64_t backward_bytes = 0;
  for (const StepResult& result : results) {
    forward_bytes += result.received.forward_bytes;
    backward_bytes += result.received.backward_bytes;
  }
  const auto units = static_cast<std::uint64_t>(expected_units(program.layout, program.depth, program.routing.policy)) *
                     static_cast<std::uint64_t>(program.layout.microbatches());
  CHECK(forward_bytes == units * shape.value_bytes());
  CHECK(backward_bytes == (program.forward_only ? 0 : units * shape.gradient_bytes()));
}

}  // namespace

TEST_CASE("every schedule gives an integer model the gradients of one process, bit for bit", "[runtime]") {
  const ScheduleKind kind = GENERATE(from_range(all_kinds()));
  Dice dice(61 + static_cast<std::uint32_t>(kind));
  for (int i = 0; i < 40; ++i) {
    const ProgramPtr program = share(random_program_of(kind, dice, small_limits));
    INFO(describe(*program));
    const IntegerModel model(program->depth, 3, 4, static_cast<std::uint32_t>(i));
    IntegerHost host(model, program->depth, program->layout.microbatches(), Storage::fp64);
    ExecutorOptions options;
    options.poison = Poison::always;
    options.verify_messages = i % 8 == 0;
    const bool threads = i % 4 == 0;
    const auto results = threads ? run_on_threads(program, host.stages(), host.shape(), options)
                                 : interpret_single_thread(program, host.stages(), host.shape(), {Poison::always});
    CHECK(host.gradients() == expected_for(*program, model));
    check_bytes(*program, host.shape(), results);
  }
}

TEST_CASE("fp64 gradients under every schedule equal one process to 1e-12, recomputing or not", "[runtime]") {
  const ScheduleKind kind = GENERATE(from_range(all_kinds()));
  Dice dice(81 + static_cast<std::uint32_t>(kind));
  for (int i = 0; i < 30; ++i) {
    const ProgramPtr program = share(random_program_of(kind, dice, small_limits));
    ModelOptions options;
    options.recompute = i % 2 == 1;
    options.head_aggregate = i % 5 != 4;
    INFO(describe(*program) << " recompute " << options.recompute << " head " << options.head_aggregate);
    ModelHost host(program->depth, options);
    const auto alone =
        interpret_single_thread(program, host.stages(), host.shape(), {.poison = Poison::always, .observer = nullptr});
    const OneProcess expected =
        run_in_one_process(program->depth, options, program->layout.microbatches(), !program->forward_only);
    CHECK(largest_difference(host.gradients(), expected.gradients) <= rounding_tolerance);
    CHECK(host.losses() == expected.losses);
    CHECK(host.num_kept() == 0);
    if (i % 6 != 0) continue;
    ModelHost threaded(program->depth, options);
    ExecutorOptions executor_options;
    executor_options.poison = Poison::always;
    const auto results = run_on_threads(program, threaded.stages(), threaded.shape(), executor_options);
    CHECK(threaded.gradients() == host.gradients());
    CHECK(threaded.losses() == host.losses());
    for (std::size_t r = 0; r < results.size(); ++r) {
      CHECK(results[r].received == alone[r].received);
      CHECK(results[r].peak_deferred_bytes == alone[r].peak_deferred_bytes);
    }
  }
}

TEST_CASE("one W left out makes the weight gradients of its chunk wrong, and no other", "[runtime]") {
  const ScheduleKind kind = GENERATE(from_range(all_kinds()));
  Dice dice(101 + static_cast<std::uint32_t>(kind));
  int num_tried = 0;
  bool splits = false;
  for (int i = 0; i < 12; ++i) {
    const ProgramPtr program = share(random_program_of(kind, dice, small_limits, true));
    splits = splits || splits_backward(*program);
    // A W of a chunk that has weights, so none of an empty one.
    std::vector<Compute> weights;
    for (const RankProgram& rank : program->ranks) {
      for (const ComputeStep& step : rank.compute) {
        if (step.compute.op == Op::backward_weight && program->depth.sublayers_of(step.compute.chunk).size() > 0) {
          weights.push_back(step.compute);
        }
      }
    }
    if (weights.empty()) continue;
    const Compute left_out = weights[static_cast<std::size_t>(dice.roll(0, static_cast<int>(weights.size()) - 1))];
    INFO(describe(*program) << " without " << to_string(left_out));
    ModelHost expected(program->depth, {});
    interpret_single_thread(program, expected.stages(), expected.shape());
    ModelHost host(program->depth, {});
    Spectator spectator;
    spectator.lets_weight = [&](ChunkId chunk, Microbatch m) {
      return chunk != left_out.chunk || m != left_out.microbatch;
    };
    const WatchedStages watched(host.stages(), spectator);
    interpret_single_thread(program, watched.table(), host.shape());
    auto wrong = host.gradients();
    CHECK(host.num_kept() > 0);
    for (const auto& [name, gradient] : expected.gradients()) {
      const SublayerRange own = program->depth.sublayers_of(left_out.chunk);
      bool missing = name == "slope" && left_out.chunk.value + 1 == program->depth.num_chunks();
      for (int l = own.begin; l < own.end; ++l)
        missing = missing || name == "weight." + std::to_string(l);
      INFO(name);
      CHECK((wrong.at(name) == gradient) == !missing);
    }
    ++num_tried;
  }
  CHECK((num_tried > 0) == splits);
}

TEST_CASE("what waits for its W is counted as the order of I and W says, and takes no slot", "[runtime]") {
  const ScheduleKind kind = GENERATE(from_range(all_kinds()));
  Dice dice(121 + static_cast<std::uint32_t>(kind));
  for (int i = 0; i < 10; ++i) {
    const ProgramPtr program = share(random_program_of(kind, dice, small_limits, true));
    INFO(describe(*program));
    const IntegerModel model(program->depth, 3, 4);
    IntegerHost host(model, program->depth, program->layout.microbatches(), Storage::fp64);
    const auto results = interpret_single_thread(program, host.stages(), host.shape());
    for (std::size_t r = 0; r < results.size(); ++r) {
      std::size_t now = 0;
      std::size_t peak = 0;
      for (const ComputeStep& step : program->ranks[r].compute) {
        const auto sublayers = static_cast<std::size_t>(program->depth.sublayers_of(step.compute.chunk).size());
        const std::size_t kept = sublayers * 2 * host.shape().gradient_bytes();
        if (step.compute.op == Op::backward_input) now += kept;
        if (step.compute.op == Op::backward_weight) {
          now -= kept;
          CHECK(step.operands.size() == 0);
          CHECK(step.releases.size() == 0);
        }
        peak = std::max(peak, now);
      }
      CHECK(results[r].peak_deferred_bytes == peak);
    }
  }
}

namespace {

// Holds the first W of the last rank until the first rank has computed an I, for which a gradient must have left.
class HoldWeight final : public StepObserver {
 public:
  void compute_starting(RankId rank, const Compute& compute) override {
    if (rank.value != 1 || compute.op != Op::backward_weight) return;
    std::unique_lock lock(mutex_);
    passed_ = changed_.wait_for(lock, std::chrono::seconds(30), [this] { return arrived_; });
  }
  void compute_finished(RankId rank, const Compute& compute) override {
    if (rank.value != 0 || compute.op != Op::backward_input) return;
    const std::lock_guard lock(mutex_);
    arrived_ = true;
    changed_.notify_all();
  }
  bool passed_while_held() const { return passed_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool arrived_ = false;
  bool passed_ = false;
};

}  // namespace

TEST_CASE("a W that lasts does not hold the gradients of its I", "[runtime]") {
  const auto compute = [](Op op, int chunk) { return Action{{op, ChunkId(chunk), Microbatch(0)}, std::nullopt}; };
  Schedule schedule{"by hand", Layout(2, 1, 1), {}, false};
  for (const int chunk : {0, 1}) {
    schedule.ranks.push_back(
        {compute(Op::forward, chunk), compute(Op::backward_input, chunk), compute(Op::backward_weight, chunk)});
  }
  // The cut lies inside a block: both a partial's gradient and block sums leave.
  const DepthMap depth(7, 2, {3, 7});
  for (const Policy policy : block_policies) {
    INFO(to_string(policy));
    const ProgramPtr program = share(lower(schedule, depth, policy));
    const IntegerModel model(program->depth, 2, 4);
    IntegerHost host(model, program->depth, 1, Storage::fp64);
    HoldWeight hold;
    ExecutorOptions options;
    options.observer = &hold;
    run_on_threads(program, host.stages(), host.shape(), options);
    CHECK(hold.passed_while_held());
    CHECK(host.gradients() == model.reference(1));
  }
}

TEST_CASE("weight gradients may all wait for the end of the step", "[runtime]") {
  Dice dice(141);
  for (const Policy policy : block_policies) {
    const Layout layout(3, 2, 6);
    ScheduleRequest request;
    request.kind = ScheduleKind::interleaved;
    Schedule at_once = make_schedule(request, layout);
    Schedule at_end = at_once;
    at_once.ranks.clear();
    for (std::vector<Action>& row : at_end.ranks) {
      std::vector<Action> split;
      std::vector<Action> weights;
      at_once.ranks.emplace_back();
      for (Action action : row) {
        const Action weight{{Op::backward_weight, action.first.chunk, action.first.microbatch}, std::nullopt};
        const bool backward = action.first.op == Op::backward;
        if (backward) action.first.op = Op::backward_input;
        split.push_back(action);
        at_once.ranks.back().push_back(action);
        if (!backward) continue;
        weights.push_back(weight);
        at_once.ranks.back().push_back(weight);
      }
      split.insert(split.end(), weights.begin(), weights.end());
      row = std::move(split);
    }
    const DepthMap depth = random_depth(dice, layout.num_chunks(), 14);
    const ProgramPtr late = share(lower(at_end, depth, policy));
    INFO(describe(*late));
    const ProgramPtr early = share(lower(at_once, depth, policy));
    const IntegerModel model(depth, 3, 4);
    IntegerHost host(model, depth, layout.microbatches(), Storage::fp64);
    const auto waited = run_on_threads(late, host.stages(), host.shape());
    CHECK(host.gradients() == model.reference(layout.microbatches()));
    host.clear();
    const auto prompt = run_on_threads(early, host.stages(), host.shape());
    CHECK(host.gradients() == model.reference(layout.microbatches()));
    for (std::size_t r = 0; r < waited.size(); ++r) {
      std::size_t all = 0;
      std::size_t largest = 0;
      for (const ChunkId chunk : layout.chunks_on(RankId(r))) {
        const auto kept =
            static_cast<std::size_t>(depth.sublayers_of(chunk).size()) * 2 * host.shape().gradient_bytes();
        all += static_cast<std::size_t>(layout.microbatches()) * kept;
        largest = std::max(largest, kept);
      }
      CHECK(waited[r].peak_deferred_bytes == all);
      CHECK(prompt[r].peak_deferred_bytes == largest);
    }
  }
}

}  // namespace plumb::test

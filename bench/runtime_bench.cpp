// SPDX-License-Identifier: Apache-2.0
#include "runtime_bench.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "plumb/cache/lower.hpp"
#include "plumb/runtime/executor.hpp"
#include "plumb/runtime/rank_threads.hpp"
#include "plumb/schedule/generators.hpp"

namespace plumb::bench {
namespace {

constexpr int num_steps = 41;

class EmptyStage final : public Stage {
 public:
  void forward(const StageForward&) override {}
  void backward(const StageBackward&) override {}
};

// Interleaved 1F1B; every chunk of two sublayers closes one block.
std::shared_ptr<const Program> make_program(int pp, int vp, int microbatches) {
  const Layout layout(pp, vp, microbatches);
  const int sublayers = 2 * layout.num_chunks();
  const DepthMap depth(sublayers, 2, DepthMap::even_cuts(sublayers, sublayers, layout.num_chunks()));
  const Schedule schedule = interleaved(layout, default_group(layout));
  return std::make_shared<const Program>(lower(schedule, depth, Policy::cached));
}

constexpr SlotShape tiny{1, 16, Storage::fp32};

// Median wall of a step, in microseconds, after one to warm up.
double step_us(Executor& executor, const std::shared_ptr<const Program>& program) {
  const ProgramHandle handle = executor.prepare(program, tiny);
  executor.run(handle);
  std::vector<double> walls;
  for (int i = 0; i < num_steps; ++i) {
    walls.push_back(std::chrono::duration<double, std::micro>(executor.run(handle).wall).count());
  }
  std::nth_element(walls.begin(), walls.begin() + num_steps / 2, walls.end());
  return walls[num_steps / 2];
}

double num_actions(const Program& program) { return static_cast<double>(program.ranks.front().compute.size()); }

double measure_dispatch() {
  const auto program = make_program(1, 8, 64);
  EmptyStage stage;
  Executor executor(RankId{0}, StageTable(8, &stage), nullptr, nullptr);
  return step_us(executor, program) / num_actions(*program);
}

double measure_handover() {
  constexpr int num_ranks = 4;
  const auto program = make_program(num_ranks, 2, 64);
  EmptyStage stage;
  std::vector<double> all_us(num_ranks);
  run_ranks_as_threads(num_ranks, [&](RankId rank, Transport& transport, ControlPlane& control) {
    Executor executor(rank, StageTable(8, &stage), &transport, &control);
    all_us[rank.index()] = step_us(executor, program);
    control.barrier(std::chrono::seconds(60));
  });
  return *std::max_element(all_us.begin(), all_us.end()) / num_actions(*program);
}

}  // namespace

RuntimeCost measure_runtime() { return {measure_dispatch(), measure_handover()}; }

}  // namespace plumb::bench

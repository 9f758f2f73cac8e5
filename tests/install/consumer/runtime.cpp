// SPDX-License-Identifier: Apache-2.0
// A user of `runtime`: a step of idle stages moves exactly the bytes that the formula names.
#include <memory>
#include <vector>

#include <plumb/cache/lower.hpp>
#include <plumb/cache/volume.hpp>
#include <plumb/runtime/interpreter.hpp>
#include <plumb/schedule/generators.hpp>

namespace {

class IdleStage : public plumb::Stage {
 public:
  void forward(const plumb::StageForward&) override {}
  void backward(const plumb::StageBackward&) override {}
};

}  // namespace

int main() {
  const plumb::Layout layout(4, 1, 4);
  const plumb::DepthMap depth(8, 2, plumb::DepthMap::even_cuts(8, 8, 4));
  const auto program =
      std::make_shared<const plumb::Program>(plumb::lower(plumb::one_f_one_b(layout), depth, plumb::Policy::cached));
  std::vector<IdleStage> stages(4);
  plumb::StageTable table;
  for (IdleStage& stage : stages)
    table.push_back(&stage);
  const plumb::SlotShape shape{.tokens = 3, .width = 5};

  std::uint64_t forward_bytes = 0;
  for (const plumb::StepResult& rank : plumb::interpret_single_thread(program, table, shape)) {
    forward_bytes += rank.received.forward_bytes;
  }
  const std::int64_t units = plumb::expected_units(layout, depth, plumb::Policy::cached) * layout.microbatches();
  return forward_bytes == static_cast<std::uint64_t>(units) * 3 * 5 * sizeof(float) ? 0 : 1;
}

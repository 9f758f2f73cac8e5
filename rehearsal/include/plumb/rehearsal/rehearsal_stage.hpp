// SPDX-License-Identifier: Apache-2.0
//
// rehearsal_stage.hpp: a Stage that takes its time instead of computing, and checks what it is given.
//
// It sleeps for as long as the cost model says, stamps every block and partial it writes with (step, microbatch, chunk,
// block), checks the stamps of all it reads when it begins and when it ends, contributes small integers to gradients
// and checks the sums that reach a closer. So a rehearsal is also a correctness run of the whole runtime. It is NOT a
// model: nothing is learnt, and only a few places of each slot are touched (one in 4 KiB).
// Ownership: the Play belongs to the caller and outlives the stages. Threads: as Stage; one Play per rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "plumb/cache/program.hpp"
#include "plumb/comm/shaped_transport.hpp"
#include "plumb/runtime/stage.hpp"
#include "plumb/simulator/cost_model.hpp"

namespace plumb {

// What all stages of a rank play from, and what they found. Fields are set between steps.
struct Play {
  const Program* program = nullptr;
  const CostModel* costs = nullptr;
  std::int64_t step = 0;
  // Told when the rank computes, so that communication waits for it; null: it has a thread of its own.
  ShapedTransport* waits_for_compute = nullptr;
  // Each computation takes up to this much longer, drawn from the seed.
  std::chrono::nanoseconds longest_extra{0};
  std::uint64_t seed = 0;

  // Planted faults, for tests of the checks and of the watch over stalls.
  std::optional<Compute> wrong_stamp_at;  // this computation writes the stamp of another step
  std::optional<Compute> hangs_at;        // this computation takes `hang` longer
  std::chrono::nanoseconds hang{0};

  // When the last computation ended, and how much too late: the stages' own.
  std::chrono::nanoseconds ended{0};
  std::chrono::nanoseconds late{0};

  // Findings.
  std::int64_t num_checked = 0;  // values and sums that were looked at
  std::int64_t num_mismatches = 0;
  std::string first_mismatch;
};

class RehearsalStage final : public Stage {
 public:
  RehearsalStage(RankId rank, ChunkId chunk, Play& play) : rank_(rank), chunk_(chunk), play_(play) {}

  void forward(const StageForward& args) override;
  void backward(const StageBackward& args) override;
  void backward_input(const StageBackward& args) override;
  void backward_weight(Microbatch microbatch) override;

 private:
  class Sitting;
  void back(Op op, const StageBackward& args);
  void check_values(const Compute& now, std::span<const BlockValue> blocks, const ConstView& partial_in);
  void check_value(const Compute& now, const ConstView& value, ChunkId writer, std::int32_t block);
  void check_sum(const Compute& now, const ConstView& sum, std::int64_t number, std::int64_t count,
                 const std::string& what);
  void report(const Compute& now, const std::string& what);

  RankId rank_;
  ChunkId chunk_;
  Play& play_;
};

}  // namespace plumb

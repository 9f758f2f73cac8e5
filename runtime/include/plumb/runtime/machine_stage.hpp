// SPDX-License-Identifier: Apache-2.0
//
// machine_stage.hpp: the usual way in: a Stage made of the host's sublayers and the block state machine.
//
// The first chunk has the model's entry, the last one its exit; the machine does everything in between, including the
// head's aggregate. Without a head aggregate the exit reads the plain sum b_0 + .. + b_N, as a plain residual network's
// head does. With recomputation nothing is kept between forward and backward; the backward repeats the chunk's forward
// from the very slots it reads anyway and writes no block again, so the cache never notices. Ownership: everything
// passed in belongs to the caller and outlives the stage. Threads: as Stage.
#pragma once

#include <memory>
#include <vector>

#include "plumb/kernels/block_machine.hpp"
#include "plumb/runtime/model_ends.hpp"
#include "plumb/runtime/stage.hpp"

namespace plumb {

struct MachineStageOptions {
  ModelEntry* entry = nullptr;  // on the first chunk, and only there
  ModelExit* exit = nullptr;    // on the chunk with has_head, and only there
  bool recompute = false;
  std::shared_ptr<DepthWorkspace> workspace = nullptr;  // one for all chunks of a rank; null: one of its own
  DepthStatistics* statistics = nullptr;                // of the same chunk, for diagnostics; null: none
};

class MachineStage final : public Stage {
 public:
  // Throws std::invalid_argument as BlockMachine does, or when exit and has_head disagree.
  MachineStage(const DepthConfig& config, const ChunkRange& chunk, std::vector<Sublayer*> sublayers,
               DepthParameters& parameters, MachineStageOptions options = {});
  ~MachineStage() override;

  void forward(const StageForward& args) override;
  void backward(const StageBackward& args) override;
  void backward_input(const StageBackward& args) override;
  void backward_weight(Microbatch microbatch) override;
  std::size_t deferred_bytes() const override;
  void abandon() noexcept override;

  // Forwards whose backward is still to come.
  std::size_t num_in_flight() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plumb

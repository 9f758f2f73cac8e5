// SPDX-License-Identifier: Apache-2.0
//
// standard_stage.hpp: a Stage with the ordinary residual stream, x += f(x): the old path, for comparison and for models
// without depth attention.
//
// The hidden state x travels as the partial; there are no blocks. Same sublayers, same ends of the model as
// machine_stage.hpp. With recomputation only the slots of the runtime keep x between forward and backward. Ownership:
// everything passed in belongs to the caller and outlives the stage. Threads: as Stage.
#pragma once

#include <memory>
#include <vector>

#include "plumb/kernels/sublayer.hpp"
#include "plumb/runtime/block_store.hpp"
#include "plumb/runtime/model_ends.hpp"
#include "plumb/runtime/stage.hpp"

namespace plumb {

struct StandardStageOptions {
  ModelEntry* entry = nullptr;  // on the first chunk, and only there
  ModelExit* exit = nullptr;    // on the last chunk, and only there
  bool recompute = false;
};

class StandardStage final : public Stage {
 public:
  // Throws std::invalid_argument when a sublayer is null.
  StandardStage(const SlotShape& shape, std::vector<Sublayer*> sublayers, StandardStageOptions options = {});
  ~StandardStage() override;

  void forward(const StageForward& args) override;
  void backward(const StageBackward& args) override;
  void backward_input(const StageBackward& args) override;
  void backward_weight(Microbatch microbatch) override;
  std::size_t deferred_bytes() const override;
  void abandon() noexcept override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// watched_stage.hpp (tests): a Stage around a Stage that shows every call to a spectator before it is made.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "plumb/runtime/executor.hpp"

namespace plumb::test {

struct Spectator {
  std::function<void(ChunkId, const StageForward&)> before_forward = [](ChunkId, const StageForward&) {};
  std::function<void(ChunkId, const StageForward&)> after_forward = [](ChunkId, const StageForward&) {};
  std::function<void(ChunkId, const StageBackward&)> before_backward = [](ChunkId, const StageBackward&) {};
  // Whether the stage hears of this W at all.
  std::function<bool(ChunkId, Microbatch)> lets_weight = [](ChunkId, Microbatch) { return true; };
};

class WatchedStage final : public Stage {
 public:
  WatchedStage(ChunkId chunk, Stage& inner, const Spectator& spectator)
      : chunk_(chunk), inner_(inner), spectator_(spectator) {}
  void forward(const StageForward& args) override {
    spectator_.before_forward(chunk_, args);
    inner_.forward(args);
    spectator_.after_forward(chunk_, args);
  }
  void backward(const StageBackward& args) override {
    spectator_.before_backward(chunk_, args);
    inner_.backward(args);
  }
  void backward_input(const StageBackward& args) override {
    spectator_.before_backward(chunk_, args);
    inner_.backward_input(args);
  }
  void backward_weight(Microbatch microbatch) override {
    if (spectator_.lets_weight(chunk_, microbatch)) inner_.backward_weight(microbatch);
  }
  std::size_t deferred_bytes() const override { return inner_.deferred_bytes(); }

 private:
  ChunkId chunk_;
  Stage& inner_;
  const Spectator& spectator_;
};

// All stages of a table, watched. The spectator outlives it.
class WatchedStages {
 public:
  WatchedStages(const StageTable& inner, const Spectator& spectator) {
    for (std::size_t c = 0; c < inner.size(); ++c) {
      stages_.push_back(std::make_unique<WatchedStage>(ChunkId(c), *inner[c], spectator));
    }
  }
  StageTable table() const {
    StageTable table;
    for (const auto& stage : stages_)
      table.push_back(stage.get());
    return table;
  }

 private:
  std::vector<std::unique_ptr<WatchedStage>> stages_;
};

}  // namespace plumb::test

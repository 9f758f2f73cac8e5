// SPDX-License-Identifier: Apache-2.0
//
// integer_host.hpp (tests): Stages of an IntegerModel, one per chunk, on the runtime's slots.
//
// The buffers are fixed: made at construction, nothing is allocated in a call. A backward reads its blocks from the
// slots again, so a slot that was reused too early changes the gradients. Chunks share nothing, so ranks may be
// threads.
#pragma once

#include <memory>
#include <vector>

#include "integer_model.hpp"
#include "plumb/runtime/executor.hpp"
#include "plumb/runtime/stage.hpp"

namespace plumb::test {

struct IntegerHostOptions {
  // The closers of these blocks drop the arriving gradient sum (frozen producers): weights of their sublayers stay
  // without gradients, everything before still gets its own.
  bool frozen_embedding = false;
};

// What the host must have after one step of the program. Requires that every sum is exact.
IntegerModel::Gradients expected_for(const Program& program, const IntegerModel& model);

class IntegerHost {
 public:
  IntegerHost(const IntegerModel& model, const DepthMap& depth, int microbatches, Storage storage,
              IntegerHostOptions options = {});
  ~IntegerHost();

  // One per chunk, owned here.
  StageTable stages() const;
  SlotShape shape() const { return {model_.tokens(), model_.width(), storage_}; }

  // Sums over all calls of all chunks since the last clear.
  IntegerModel::Gradients gradients() const;
  void clear();

  // Of one chunk: what its rank can vouch for when ranks are processes. [sublayer in chunk][width]
  const std::vector<std::vector<double>>& weight_gradients(ChunkId chunk) const;
  int num_abandoned() const;

 private:
  class ChunkStage;
  const IntegerModel model_;
  Storage storage_;
  std::vector<std::unique_ptr<ChunkStage>> stages_;
};

}  // namespace plumb::test

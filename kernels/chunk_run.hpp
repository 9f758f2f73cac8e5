// SPDX-License-Identifier: Apache-2.0
// chunk_run.hpp (private): one pass over a chunk, forward or backward, on the stack of the call.
//
// Blocks are indexed by their number in the model (b_0 first), sublayers by their place in the chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "chunk_plan.hpp"
#include "plumb/kernels/block_machine.hpp"
#include "workspace.hpp"

namespace plumb::kernels_detail {

inline std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// What one tape keeps between forward and backward.
struct Activations {
  Buffer lse;          // [tokens] per sublayer: Lambda over all its sources
  Buffer inverse_rms;  // [tokens] per block read
  Buffer partials;     // a row of values per saved partial
};

/// What does not change between the passes of a machine.
struct ChunkContext {
  DepthConfig config;
  ChunkRange range;
  ChunkPlan plan;
  std::vector<Sublayer*> sublayers;
  DepthParameters* parameters = nullptr;
  DepthStatistics* statistics = nullptr;
  int query_batch = 0;
};

class ChunkRun {
 public:
  /// `kept` null: nothing outlives the call.
  ChunkRun(const ChunkContext& context, DepthWorkspace& workspace, TapeId tape, std::int64_t tokens, Activations* kept);

  void forward(const MachineForward& args);

  /// The forward once more, into `kept`; writes no block and no partial of the caller, tells nobody.
  void recompute(const MachineBackward& args);

  /// REQUIRES: `kept` as the forward filled it. `split`: leave the weight gradients to backward_weight.
  void backward(const MachineBackward& args, bool split);

 private:
  // Where a forward puts what it makes; all empty when recomputing.
  struct Outputs {
    std::span<void* const> closed;
    void* partial = nullptr;
    BlockListener* listener = nullptr;
  };

  // chunk_run.cpp
  std::size_t values_bytes() const;      // of [tokens, width]
  std::size_t values_stride() const;     // from one such row of a buffer to the next
  std::size_t gradients_bytes() const;   // of [tokens, width]
  std::size_t gradients_stride() const;  // from one such row of a buffer to the next
  std::size_t runs_stride() const;       // from one [num_token_runs, width] of a buffer to the next
  std::size_t statistics_bytes() const;  // of [tokens]
  std::size_t query_bytes() const;       // of [width]
  void start(std::span<const void* const> sources, std::span<const void* const> closed);
  const void* folded(int aggregate) const;
  std::byte* lse(int sublayer) const;
  std::byte* inverse_rms_row(int block) const;
  void* saved_partial(int sublayer) const;
  bool mixes_in_place(int sublayer) const;
  bool reuses_partials() const;
  DepthSource source(int block) const;
  const void* partial_before(int sublayer, const void* partial_in) const;
  void scale_sources(int end);
  int batch_begin(int sublayer) const;
  void phase_one(int sublayer);
  bool reads_directly(int sublayer) const;
  std::byte* mixture_row(int sublayer) const;
  const void* mixture(int sublayer) const;
  const void* mixture_lse(int sublayer) const;
  cpu::Execution execution() const;
  std::span<const DepthSource> later_sources(int sublayer, const void* partial);

  DepthStatistics* active_statistics() const {
    return context_.statistics != nullptr && context_.statistics->active() ? context_.statistics : nullptr;
  }

  // chunk_forward.cpp
  void run(const void* partial_in, const Outputs& outputs, Keep keep, bool recomputing);
  void* destination(const SublayerPlan& own, const Outputs& outputs) const;
  void* output_of(int sublayer, const Outputs& outputs, bool recomputing) const;
  ConstView aggregate(int sublayer, const void* partial, const void* output);
  std::span<const DepthSource> all_sources(int num_blocks, const void* partial);

  // chunk_backward.cpp
  void head_backward(const void* grad_head);
  void part_backward(const Part& part, const void* partial_in, bool split);
  void close_backward(int sublayer, const Part& part);
  void sublayer_backward(int sublayer, const Part& part, const void* partial_in, bool split);
  void blocks_backward(int begin, int end, int first_reader, const Part& part);
  void reduce(int row, const AggregateParameters& parameters);
  void touch(int block);
  void* grad_h(int sublayer, const Part& part) const;
  std::byte* delta(int sublayer, const Part& part) const;
  std::byte* query_sums(int row) const;

  const ChunkContext& context_;
  const ChunkPlan& plan_;
  DepthWorkspace& workspace_;
  TapeId tape_;
  DepthProblem problem_;
  Storage gradient_storage_;
  Activations* kept_;
  void* open_sum_ = nullptr;  // where a forward that keeps nothing adds up the block it is in
  int num_scaled_ = 0;        // blocks whose 1/rms is known
  int loaded_batch_ = -1;     // first sublayer of the phase-one batch in the workspace
  bool backward_ = false;     // phase one then leaves unrounded mixtures
};

}  // namespace plumb::kernels_detail

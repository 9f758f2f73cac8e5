// SPDX-License-Identifier: Apache-2.0
// block_machine.hpp: runs one chunk of consecutive sublayers whose residual stream is depth attention.
//
// Forward: each sublayer reads h, the softmax mixture of the closed blocks and the open partial sum; its output is
// added to the partial; the last sublayer of a block closes it. Backward: gradients of the blocks are added to the
// accumulators the caller lends. The machine is NOT a cache or a schedule: blocks come and go as pointers, tapes
// (in-flight forwards) are named by the caller.
// Tensors are [tokens, width], contiguous; values in config.storage, gradients in gradient_storage(config.storage).
// Ownership: sublayers, parameters and every pointer belong to the caller and are used only during the call;
// saved activations and workspace belong to the machine and are reused: nothing is allocated once each number of
// simultaneous tapes and of tokens has been seen. Threads: one call at a time per machine and per workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plumb/kernels/depth_config.hpp"
#include "plumb/kernels/depth_parameters.hpp"
#include "plumb/kernels/depth_statistics.hpp"
#include "plumb/kernels/storage.hpp"
#include "plumb/kernels/sublayer.hpp"

namespace plumb {

/// Told that a block is complete while later sublayers of the chunk still run, so that it may leave early.
class BlockListener {
 public:
  virtual ~BlockListener() = default;
  /// `index` counts the blocks this chunk closes, from 0: MachineForward::closed[index] is final. Not called by a
  /// recomputation. The slot stays readable for the rest of this forward.
  virtual void block_closed(std::size_t index) = 0;
};

/// evaluate: nothing is kept, by machine or host. train: a backward with the same tape follows.
enum class ForwardKind { evaluate, train };

/// Operands of one forward. Which of them exist is chunk_depth(); a wrong count or a null where a tensor is due
/// throws std::invalid_argument. No output may overlap an input or another output; outputs are fully overwritten.
struct MachineForward {
  std::int64_t tokens = 0;
  std::span<const void* const> sources;  ///< b_0 .. b_{num_sources-1}; may be left empty by a chunk that reads none.
  const void* partial_in = nullptr;      ///< the block left open by the chunk before.
  std::span<void* const> closed;         ///< one slot per block this chunk closes, ascending.
  void* partial_out = nullptr;           ///< the block this chunk leaves open.
  void* head = nullptr;                  ///< the head's aggregate of b_0 .. b_N, on the head chunk if configured.
  ForwardKind kind = ForwardKind::train;
  BlockListener* listener = nullptr;  ///< optional.
};

/// An accumulator of a block's gradient. first_touch: it holds nothing yet and is overwritten (no clearing needed);
/// otherwise it holds a sum that arrived from elsewhere and is added to.
struct BlockGradient {
  void* sum = nullptr;
  bool first_touch = true;
};

/// Operands of one backward; values are the very ones of the forward. No two accumulators overlap.
struct MachineBackward {
  std::span<const void* const> sources;         ///< as in the forward.
  const void* partial_in = nullptr;             ///< as in the forward.
  std::span<const void* const> closed;          ///< the blocks this chunk closed; null is fine for one that nothing
                                                ///< later in this chunk reads.
  const void* grad_partial_out = nullptr;       ///< gradient of partial_out, where there is one.
  const void* grad_head = nullptr;              ///< gradient of the head's aggregate, where there is one.
  std::span<const BlockGradient> grad_closed;   ///< per closed block: the sum from later chunks comes in; afterwards
                                                ///< it is the block's total gradient.
  std::span<const BlockGradient> grad_sources;  ///< per source: exactly one contribution is added by this call.
  void* grad_partial_in = nullptr;              ///< written: gradient of partial_in, where there is one.
};

/// Buffers needed only while a call runs. Machines that never run at the same time (the chunks of one rank) should
/// share one. Its threads run the operators of depth attention (not the sublayers) and change no bit. Throws
/// std::invalid_argument unless 1 <= num_threads <= 1024.
class DepthWorkspace;
std::shared_ptr<DepthWorkspace> make_depth_workspace(int num_threads = 1);

struct MachineOptions {
  bool recompute = false;  ///< keep nothing after the forward; the backward first repeats it, with the same bits.
  int query_batch = 6;     ///< queries per pass over the closed blocks; bounds the workspace, changes no bit.
  std::shared_ptr<DepthWorkspace> workspace = nullptr;  ///< null: a workspace of its own.
  DepthStatistics* statistics = nullptr;                ///< of the same chunk; null: none. The caller's, outlives this.
};

/// Invariants.
/// 1. The forward of a model does not depend on how it is cut into chunks, bit for bit.
/// 2. The gradient of a sublayer's output is the gradient of the partial sum after it.
/// 3. Partial sums are only ever formed by adding outputs in order, never by subtracting.
/// 4. A source that is an aggregate's only one has weight exactly 1 and logit gradient exactly 0.
/// 5. Same input, same bits: every sum has a fixed order.
///
/// The embedding b_0: the host writes it into its slot before chunk 0 runs, and chunk 0 reads it as sources[0].
/// Chunk 0's backward takes b_0's accumulator as grad_sources[0] (first_touch unless a sum of later chunks is in it)
/// and leaves b_0's total gradient there for the host's embedding.
///
/// An empty chunk copies partial_in to partial_out and, backward, grad_partial_out to grad_partial_in. It contributes
/// nothing to sources: their accumulators may be left out; one that is given with first_touch is filled with zeros.
class BlockMachine {
 public:
  /// REQUIRES: sublayers.size() == chunk.count; parameters made for the same config and chunk; both outlive this.
  /// Throws std::invalid_argument on an illegal config, range, option or mismatch.
  BlockMachine(const DepthConfig& config, const ChunkRange& chunk, std::vector<Sublayer*> sublayers,
               DepthParameters& parameters, MachineOptions options = {});
  ~BlockMachine();
  BlockMachine(BlockMachine&&) noexcept;
  BlockMachine& operator=(BlockMachine&&) noexcept;

  const DepthConfig& config() const;
  const ChunkRange& chunk() const;
  const ChunkDepth& depth() const;

  /// Runs the chunk. Throws std::invalid_argument on bad operands or, in training, a tape already in flight.
  void forward(TapeId tape, const MachineForward& args);

  /// Whole backward of a forward with ForwardKind::train; consumes the tape. Adds to the depth parameters' gradients.
  /// The parameters must not have changed since the forward. Throws std::invalid_argument on bad operands or an
  /// unknown tape.
  void backward(TapeId tape, const MachineBackward& args);

  /// First half of a split backward: everything that reads a block or a partial, and the depth parameters' gradients.
  /// Afterwards no pointer of `args` is needed any more; the tape waits for backward_weight.
  void backward_input(TapeId tape, const MachineBackward& args);

  /// Second half: the sublayers' weight gradients. Reads no block.
  void backward_weight(TapeId tape);

  /// Abandons a tape at any point of its life; unknown tapes are ignored.
  void drop(TapeId tape);

  /// Tapes in flight, for assertions at the end of a step.
  std::size_t num_tapes() const;

  /// What the sublayers keep now for backward_weight. The machine itself keeps nothing for it.
  std::size_t deferred_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plumb

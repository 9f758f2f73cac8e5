// SPDX-License-Identifier: Apache-2.0
// Backward of a chunk, deepest first: head, then part by part. Within a part each sublayer's own backward needs only
// the gradient of the partial after it, so gradients of the closed blocks wait until all sublayers of the part have
// delivered their G = dL/dh, and each block is then read once for all of them.
#include <algorithm>
#include <cstring>

#include "chunk_run.hpp"

namespace plumb::kernels_detail {

void ChunkRun::backward(const MachineBackward& args, bool split) {
  backward_ = true;
  start(args.sources, args.closed);
  num_scaled_ = plan_.num_read;  // kept since the forward
  loaded_batch_ = -1;
  DepthWorkspace& w = workspace_;
  w.gradients.assign(args.grad_sources.begin(), args.grad_sources.end());
  w.gradients.resize(index(plan_.depth.num_sources), BlockGradient{nullptr, false});
  w.gradients.insert(w.gradients.end(), args.grad_closed.begin(), args.grad_closed.end());
  const auto longest = index(plan_.longest_part);
  w.grad_h.reserve(index(reuses_partials() ? plan_.most_unsaved : plan_.longest_part) * gradients_stride());
  w.grad_partial.reserve(gradients_bytes());
  w.delta.reserve(longest * statistics_bytes());
  w.query_sums.reserve(index(std::max(plan_.longest_part, 1)) * runs_stride());

  if (plan_.depth.partial_out) {
    std::memcpy(w.grad_partial.at(0), args.grad_partial_out, gradients_bytes());
  }
  if (plan_.head) {
    head_backward(args.grad_head);
  }
  for (auto part = plan_.parts.rbegin(); part != plan_.parts.rend(); ++part) {
    part_backward(*part, args.partial_in, split);
  }
  if (plan_.depth.partial_in) {
    std::memcpy(args.grad_partial_in, w.grad_partial.at(0), gradients_bytes());
  }
  for (int n = 0; n < plan_.depth.num_sources; ++n) {
    touch(n);
  }
}

// An accumulator that nobody has written yet holds zero from here on.
void ChunkRun::touch(int block) {
  BlockGradient& own = workspace_.gradients[index(block)];
  if (own.first_touch) {
    std::memset(own.sum, 0, gradients_bytes());
    own.first_touch = false;
  }
}

// A saved partial has been used up when the backward comes to its sublayer: the gradient of that sublayer's h, which
// has to wait for those of the others, takes its place.
void* ChunkRun::grad_h(int sublayer, const Part& part) const {
  if (!reuses_partials()) {
    return workspace_.grad_h.at(index(sublayer - part.begin) * gradients_stride());
  }
  const SublayerPlan& own = plan_.sublayers[index(sublayer)];
  return own.saved_partial >= 0 ? saved_partial(sublayer)
                                : workspace_.grad_h.at(index(own.unsaved) * gradients_stride());
}
std::byte* ChunkRun::delta(int sublayer, const Part& part) const {
  return workspace_.delta.at(index(sublayer - part.begin) * statistics_bytes());
}
std::byte* ChunkRun::query_sums(int row) const { return workspace_.query_sums.at(index(row) * runs_stride()); }

void ChunkRun::reduce(int row, const AggregateParameters& parameters) {
  cpu::reduce_query_gradient(problem_, {query_sums(row), parameters.query.data, parameters.gain.data,
                                        parameters.query_gradient.data, parameters.gain_gradient.data});
}

void ChunkRun::head_backward(const void* grad_head) {
  DepthWorkspace& w = workspace_;
  w.source_gradients.clear();
  for (int n = 0; n < plan_.num_read; ++n) {
    BlockGradient& own = w.gradients[index(n)];
    w.source_gradients.push_back({source(n), own.sum, own.first_touch});
    own.first_touch = false;
  }
  std::memset(query_sums(0), 0, runs_stride());
  cpu::aggregate_backward(problem_, {w.source_gradients, folded(context_.range.count), grad_head, query_sums(0)},
                          execution());
  reduce(0, context_.parameters->head());
}

void ChunkRun::part_backward(const Part& part, const void* partial_in, bool split) {
  std::memset(query_sums(0), 0, static_cast<std::size_t>(query_sums(part.size()) - query_sums(0)));
  for (int i = part.end - 1; i >= part.begin; --i) {
    if (plan_.sublayers[index(i)].closes) {
      close_backward(i, part);
    }
    sublayer_backward(i, part, partial_in, split);
  }
  // What the part's first sublayer reads, all of them read.
  blocks_backward(0, plan_.sublayers[index(part.begin)].block, part.begin, part);
  for (int i = part.begin; i < part.end; ++i) {
    reduce(i - part.begin, context_.parameters->sublayer(i));
  }
}

// The block's sum becomes the gradient of the partial after its last sublayer. Its readers in other parts have
// contributed; those in this part (a schedule block holds several blocks) are exactly the sublayers behind it.
void ChunkRun::close_backward(int sublayer, const Part& part) {
  const int block = plan_.sublayers[index(sublayer)].block;
  blocks_backward(block, block + 1, sublayer + 1, part);
  touch(block);
  std::memcpy(workspace_.grad_partial.at(0), workspace_.gradients[index(block)].sum, gradients_bytes());
}

void ChunkRun::sublayer_backward(int sublayer, const Part& part, const void* partial_in, bool split) {
  void* grad_partial = workspace_.grad_partial.at(0);
  const ConstView df{grad_partial, problem_.tokens, problem_.width, gradient_storage_};
  const View dh{grad_h(sublayer, part), problem_.tokens, problem_.width, gradient_storage_};
  Sublayer& own = *context_.sublayers[index(sublayer)];
  if (DepthStatistics* const statistics = active_statistics()) {
    statistics->add_output_gradient(index(sublayer), df);
  }
  if (split) {
    own.backward_input(tape_, df, dh);
  } else {
    own.backward(tape_, df, dh);
  }
  phase_one(sublayer);
  const void* partial = partial_before(sublayer, partial_in);
  const std::span<const DepthSource> later = later_sources(sublayer, partial);
  cpu::merge_backward(
      problem_,
      {mixture(sublayer), mixture_lse(sublayer), later, folded(sublayer), dh.data, lse(sublayer), delta(sublayer, part),
       partial == nullptr ? nullptr : grad_partial, query_sums(sublayer - part.begin)},
      execution());
}

// Blocks [begin, end) from the sublayers first_reader .. end of the part.
void ChunkRun::blocks_backward(int begin, int end, int first_reader, const Part& part) {
  if (first_reader == part.end) {
    return;
  }
  DepthWorkspace& w = workspace_;
  w.source_gradients.clear();
  for (int n = begin; n < end; ++n) {
    BlockGradient& own = w.gradients[index(n)];
    w.source_gradients.push_back({source(n), own.sum, own.first_touch});
    own.first_touch = false;
  }
  w.readers.clear();
  for (int i = first_reader; i < part.end; ++i) {
    const SublayerPlan& reader = plan_.sublayers[index(i)];
    w.readers.push_back({folded(i), grad_h(i, part), lse(i), delta(i, part), query_sums(i - part.begin),
                         reader.block == 1 && reader.opens});
  }
  cpu::inter_block_backward(problem_, {w.source_gradients, w.readers}, execution());
}

}  // namespace plumb::kernels_detail

// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "chunk_run.hpp"

namespace plumb::kernels_detail {

void ChunkRun::forward(const MachineForward& args) {
  start(args.sources, {args.closed.data(), args.closed.size()});
  run(args.partial_in, {args.closed, args.partial_out, args.listener},
      kept_ == nullptr ? Keep::nothing : Keep::for_backward, false);
  if (context_.range.count == 0 && args.partial_out != nullptr) {
    std::memcpy(args.partial_out, args.partial_in, values_bytes());
  }
  if (plan_.head) {
    scale_sources(plan_.num_read);
    const std::span<const DepthSource> sources = all_sources(plan_.num_read, nullptr);
    const void* const query = folded(context_.range.count);
    cpu::aggregate_forward(problem_, {sources, query, args.head, nullptr}, execution());
    if (DepthStatistics* const statistics = active_statistics()) {
      const std::size_t row = index(context_.range.count);
      statistics->add_weights(row, problem_, sources, false, query, execution());
      statistics->add_output(row, {args.head, problem_.tokens, problem_.width, problem_.storage});
    }
  }
}

void ChunkRun::recompute(const MachineBackward& args) {
  start(args.sources, args.closed);
  run(args.partial_in, {}, Keep::for_backward, true);
  scale_sources(plan_.num_read);
}

std::span<const DepthSource> ChunkRun::all_sources(int num_blocks, const void* partial) {
  workspace_.sources.clear();
  for (int n = 0; n < num_blocks; ++n) {
    workspace_.sources.push_back(source(n));
  }
  if (partial != nullptr) {
    workspace_.sources.push_back({partial, nullptr});
  }
  return workspace_.sources;
}

void ChunkRun::run(const void* partial_in, const Outputs& outputs, Keep keep, bool recomputing) {
  if (kept_ == nullptr || recomputing) {
    workspace_.f.reserve(values_bytes());
  }
  const void* partial = partial_in;
  const void* output = nullptr;  // of the sublayer before, still to be added to the partial by whoever reads the sum
  DepthStatistics* const statistics = recomputing ? nullptr : active_statistics();
  for (int i = 0; i < context_.range.count; ++i) {
    const SublayerPlan& own = plan_.sublayers[index(i)];
    if (kept_ == nullptr) {
      open_sum_ = destination(own, outputs);
    }
    phase_one(i);
    const ConstView h = aggregate(i, partial, output);
    if (output != nullptr) {
      partial = saved_partial(i - 1);
      output = nullptr;
    }
    if (statistics != nullptr) {
      statistics->add_weights(index(i), problem_, all_sources(own.block, partial), partial != nullptr, folded(i),
                              execution());
    }
    void* const f = output_of(i, outputs, recomputing);
    const View written{f, problem_.tokens, problem_.width, problem_.storage};
    context_.sublayers[index(i)]->forward(tape_, h, written, keep);
    if (statistics != nullptr) {
      statistics->add_output(index(i), written);
    }

    // Recomputing, the last sublayer of a block or of the chunk runs for the host's tape alone: its sum exists.
    if (own.closes) {
      const auto closed = index(own.block - plan_.depth.num_sources);
      if (!recomputing) {
        const bool scales = own.block == num_scaled_ && own.block < plan_.num_read;
        cpu::add_output(problem_, {partial, f, outputs.closed[closed], scales ? inverse_rms_row(own.block) : nullptr},
                        execution());
        num_scaled_ += scales ? 1 : 0;
        if (outputs.listener != nullptr) {
          outputs.listener->block_closed(closed);
        }
      }
      partial = nullptr;
    } else if (own.saved_partial >= 0) {
      if (own.opens) {
        partial = f;
      } else {
        output = f;
      }
    } else if (!recomputing) {
      cpu::add_output(problem_, {partial, f, outputs.partial, nullptr}, execution());
    }
  }
}

// Where a sublayer writes: where the sum with its output will be, unless that place is taken.
void* ChunkRun::output_of(int sublayer, const Outputs& outputs, bool recomputing) const {
  const SublayerPlan& own = plan_.sublayers[index(sublayer)];
  if (own.saved_partial >= 0) {
    return kept_ != nullptr || own.opens ? saved_partial(sublayer) : workspace_.f.at(0);
  }
  if (recomputing || kept_ == nullptr) {
    return workspace_.f.at(0);
  }
  return destination(own, outputs);
}

// Where the sum of a sublayer's block goes when the chunk has added all it has to it.
void* ChunkRun::destination(const SublayerPlan& own, const Outputs& outputs) const {
  const auto closed = index(own.block - plan_.depth.num_sources);
  return closed < outputs.closed.size() ? outputs.closed[closed] : outputs.partial;
}

// h of one sublayer, and the partial before it if `output` is still to be added: the sum goes where it is saved. Never
// a slot of the caller: a sole source is copied.
ConstView ChunkRun::aggregate(int sublayer, const void* partial, const void* output) {
  const bool in_place = mixes_in_place(sublayer);
  if (!in_place) {
    workspace_.h.reserve(values_bytes());
  }
  void* h = in_place ? mixture_row(sublayer) : workspace_.h.at(0);
  void* sum = output == nullptr ? nullptr : saved_partial(sublayer - 1);
  if (output != nullptr && problem_.storage == Storage::fp64) {
    cpu::add_output(problem_, {partial, output, sum, nullptr}, execution());
    partial = sum;
    output = nullptr;
    sum = nullptr;
  }
  const std::span<const DepthSource> later = later_sources(sublayer, partial);
  if (!later.empty()) {
    MergeForward merge{mixture(sublayer), mixture_lse(sublayer), later, folded(sublayer), h, lse(sublayer)};
    merge.output = output;
    merge.partial_out = sum;
    cpu::merge_forward(problem_, merge, execution());
    return {h, problem_.tokens, problem_.width, problem_.storage};
  }
  if (kept_ != nullptr) {
    std::memcpy(lse(sublayer), mixture_lse(sublayer), statistics_bytes());
  }
  const void* o = mixture(sublayer);
  if (o == workspace_.values[0]) {
    std::memcpy(h, o, values_bytes());
    o = h;
  }
  return {o, problem_.tokens, problem_.width, problem_.storage};
}

}  // namespace plumb::kernels_detail

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
    workspace_.sources.clear();
    for (int n = 0; n < plan_.num_read; ++n) {
      workspace_.sources.push_back(source(n));
    }
    aggregate_forward(problem_, {workspace_.sources, folded(context_.range.count), args.head, nullptr});
  }
}

void ChunkRun::recompute(const MachineBackward& args) {
  start(args.sources, args.closed);
  run(args.partial_in, {}, Keep::for_backward, true);
  scale_sources(plan_.num_read);
}

void ChunkRun::run(const void* partial_in, const Outputs& outputs, Keep keep, bool recomputing) {
  const ConstView f{workspace_.f.at(0), problem_.tokens, problem_.width, problem_.storage};
  const void* partial = partial_in;
  for (int i = 0; i < context_.range.count; ++i) {
    const SublayerPlan& own = plan_.sublayers[index(i)];
    phase_one(i);
    const ConstView h = aggregate(i, partial);
    context_.sublayers[index(i)]->forward(
        tape_, h, {workspace_.f.at(0), problem_.tokens, problem_.width, problem_.storage}, keep);

    // Recomputing, the last sublayer of a block or of the chunk runs for the host's tape alone: its sum exists.
    if (own.closes) {
      const auto closed = index(own.block - plan_.depth.num_sources);
      if (!recomputing) {
        add_output(problem_, partial, f.data, outputs.closed[closed]);
        if (outputs.listener != nullptr) {
          outputs.listener->block_closed(closed);
        }
      }
      partial = nullptr;
    } else if (own.saved_partial >= 0) {
      void* sum = saved_partial(i);
      add_output(problem_, partial, f.data, sum);
      partial = sum;
    } else if (!recomputing) {
      add_output(problem_, partial, f.data, outputs.partial);
    }
  }
}

// h of one sublayer. Never a slot of the caller: a sole source is copied.
ConstView ChunkRun::aggregate(int sublayer, const void* partial) {
  void* h = workspace_.h.at(0);
  const std::span<const DepthSource> later = later_sources(sublayer, partial);
  if (!later.empty()) {
    merge_forward(problem_, {mixture(sublayer), mixture_lse(sublayer), later, folded(sublayer), h, lse(sublayer)});
  } else {
    std::memcpy(h, mixture(sublayer), values_bytes());
    if (kept_ != nullptr) {
      std::memcpy(lse(sublayer), mixture_lse(sublayer), statistics_bytes());
    }
  }
  return {h, problem_.tokens, problem_.width, problem_.storage};
}

}  // namespace plumb::kernels_detail

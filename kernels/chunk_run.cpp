// SPDX-License-Identifier: Apache-2.0
#include "chunk_run.hpp"

#include <algorithm>

#include "plumb/kernels/tensor_stride.hpp"

namespace plumb::kernels_detail {

ChunkRun::ChunkRun(const ChunkContext& context, DepthWorkspace& workspace, TapeId tape, std::int64_t tokens,
                   Activations* kept)
    : context_(context),
      plan_(context.plan),
      workspace_(workspace),
      tape_(tape),
      problem_{tokens, context.config.width, context.config.storage, context.config.eps},
      gradient_storage_(gradient_storage(context.config.storage)),
      kept_(kept) {}

std::size_t ChunkRun::query_bytes() const {
  return static_cast<std::size_t>(problem_.width) * bytes_per_element(gradient_storage_);
}
std::size_t ChunkRun::statistics_bytes() const {
  return static_cast<std::size_t>(problem_.tokens) * bytes_per_element(gradient_storage_);
}
std::size_t ChunkRun::gradients_bytes() const { return static_cast<std::size_t>(problem_.tokens) * query_bytes(); }
std::size_t ChunkRun::values_bytes() const {
  return static_cast<std::size_t>(problem_.tokens * problem_.width) * bytes_per_element(problem_.storage);
}

std::size_t ChunkRun::values_stride() const {
  return tensor_stride_bytes(problem_.tokens, problem_.width, problem_.storage);
}
std::size_t ChunkRun::gradients_stride() const {
  return tensor_stride_bytes(problem_.tokens, problem_.width, gradient_storage_);
}
std::size_t ChunkRun::runs_stride() const {
  return tensor_stride_bytes(num_token_runs(problem_.tokens), problem_.width, gradient_storage_);
}

// Collects the blocks under their numbers, folds the queries, and makes room for what both directions use.
void ChunkRun::start(std::span<const void* const> sources, std::span<const void* const> closed) {
  DepthWorkspace& w = workspace_;
  w.values.assign(sources.begin(), sources.end());
  w.values.resize(index(plan_.depth.num_sources), nullptr);  // an empty chunk may leave them out
  w.values.insert(w.values.end(), closed.begin(), closed.end());

  const auto num_queries = index(std::min(context_.query_batch, plan_.longest_part));
  w.o.reserve(num_queries * (backward_ ? gradients_stride() : values_stride()));
  w.lse_o.reserve(num_queries * statistics_bytes());
  w.scratch.reserve(
      cpu::workspace_bytes(problem_, plan_.num_read + 1, std::max(plan_.longest_part, 1), w.threads.num_threads()));
  const int num_aggregates = context_.range.count + (plan_.head ? 1 : 0);
  w.folded.reserve(index(num_aggregates) * query_bytes());
  for (int k = 0; k < num_aggregates; ++k) {
    const AggregateParameters own =
        k == context_.range.count ? context_.parameters->head() : context_.parameters->sublayer(k);
    fold_query(problem_, own.query.data, own.gain.data, w.folded.at(index(k) * query_bytes()));
  }
  if (kept_ == nullptr) {
    w.inverse_rms.reserve(index(plan_.num_read) * statistics_bytes());
  } else {
    kept_->inverse_rms.reserve(index(plan_.num_read) * statistics_bytes());
    kept_->lse.reserve(index(context_.range.count) * statistics_bytes());
    kept_->partials.reserve(index(plan_.num_saved_partials) * values_stride());
  }
}

const void* ChunkRun::folded(int aggregate) const { return workspace_.folded.at(index(aggregate) * query_bytes()); }

std::byte* ChunkRun::lse(int sublayer) const {
  return kept_ == nullptr ? nullptr : kept_->lse.at(index(sublayer) * statistics_bytes());
}

std::byte* ChunkRun::inverse_rms_row(int block) const {
  const Buffer& rows = kept_ == nullptr ? workspace_.inverse_rms : kept_->inverse_rms;
  return rows.at(index(block) * statistics_bytes());
}

void* ChunkRun::saved_partial(int sublayer) const {
  if (kept_ == nullptr) {
    return open_sum_;
  }
  return kept_->partials.at(index(plan_.sublayers[index(sublayer)].saved_partial) * values_stride());
}

// Whether h takes the place of the mixture that it is made from.
bool ChunkRun::mixes_in_place(int sublayer) const {
  return !reads_directly(sublayer) && plan_.parts[index(plan_.sublayers[index(sublayer)].part)].num_prior > 1;
}

// Whether a saved partial that a backward has used up is large enough for the gradient of an h.
bool ChunkRun::reuses_partials() const {
  return bytes_per_element(problem_.storage) == bytes_per_element(gradient_storage_);
}

DepthSource ChunkRun::source(int block) const { return {workspace_.values[index(block)], inverse_rms_row(block)}; }

const void* ChunkRun::partial_before(int sublayer, const void* partial_in) const {
  if (plan_.sublayers[index(sublayer)].opens) {
    return nullptr;
  }
  return sublayer == 0 ? partial_in : saved_partial(sublayer - 1);
}

// 1/rms of b_0 .. b_{end-1}, each once per pass.
void ChunkRun::scale_sources(int end) {
  for (; num_scaled_ < end; ++num_scaled_) {
    cpu::inverse_rms(problem_, workspace_.values[index(num_scaled_)], inverse_rms_row(num_scaled_), execution());
  }
}

int ChunkRun::batch_begin(int sublayer) const {
  const int begin = plan_.parts[index(plan_.sublayers[index(sublayer)].part)].begin;
  return begin + (sublayer - begin) / context_.query_batch * context_.query_batch;
}

cpu::Execution ChunkRun::execution() const {
  const std::size_t size = cpu::workspace_bytes(problem_, plan_.num_read + 1, std::max(plan_.longest_part, 1),
                                                workspace_.threads.num_threads());
  return {{workspace_.scratch.at(0), size}, &workspace_.threads};
}

// Whether a sublayer reads its closed sources itself instead of a mixture from phase one. The length of a group counts,
// not that of a part, so that the cuts change no bit. Backward a sole source is read directly too: in a short format it
// is not the unrounded mixture that the merge's backward wants.
bool ChunkRun::reads_directly(int sublayer) const {
  if (problem_.storage == Storage::fp64) {
    return false;
  }
  const DepthConfig& config = context_.config;
  const int group_length = config.mode == DepthMode::full ? config.schedule_length : config.block_length;
  const Part& part = plan_.parts[index(plan_.sublayers[index(sublayer)].part)];
  const InterBlockChoice choice = choose_inter_block(part.num_prior, group_length);
  return choice == InterBlockChoice::direct || (choice == InterBlockChoice::alias && backward_);
}

// Phase one for the batch of queries that holds this sublayer's, unless it is loaded already or not wanted.
void ChunkRun::phase_one(int sublayer) {
  const int begin = batch_begin(sublayer);
  if (begin == loaded_batch_ || reads_directly(sublayer)) {
    return;
  }
  const Part& part = plan_.parts[index(plan_.sublayers[index(sublayer)].part)];
  if (problem_.storage == Storage::fp64) {
    scale_sources(part.num_prior);
  }
  // 1/rms that is not known yet is taken on the way.
  DepthWorkspace& w = workspace_;
  w.sources.clear();
  w.inverse_rms_out.clear();
  for (int n = 0; n < part.num_prior; ++n) {
    const bool known = n < num_scaled_;
    w.sources.push_back({w.values[index(n)], known ? inverse_rms_row(n) : nullptr});
    w.inverse_rms_out.push_back(known ? nullptr : inverse_rms_row(n));
  }
  num_scaled_ = std::max(num_scaled_, part.num_prior);
  w.queries.clear();
  const int end = std::min(begin + context_.query_batch, part.end);
  for (int i = begin; i < end; ++i) {
    // A sole source is its own mixture: nothing to write.
    void* o = part.num_prior == 1 ? nullptr : mixture_row(i);
    w.queries.push_back({folded(i), o, w.lse_o.at(index(i - begin) * statistics_bytes())});
  }
  cpu::phase_one_forward(problem_, {w.sources, w.queries, backward_, w.inverse_rms_out}, execution());
  loaded_batch_ = begin;
}

std::byte* ChunkRun::mixture_row(int sublayer) const {
  const std::size_t stride = backward_ ? gradients_stride() : values_stride();
  return workspace_.o.at(index(sublayer - batch_begin(sublayer)) * stride);
}

// Null where the sublayer reads its sources directly.
const void* ChunkRun::mixture(int sublayer) const {
  if (reads_directly(sublayer)) {
    return nullptr;
  }
  const Part& part = plan_.parts[index(plan_.sublayers[index(sublayer)].part)];
  return part.num_prior == 1 ? workspace_.values[0] : mixture_row(sublayer);
}

const void* ChunkRun::mixture_lse(int sublayer) const {
  return reads_directly(sublayer) ? nullptr
                                  : workspace_.lse_o.at(index(sublayer - batch_begin(sublayer)) * statistics_bytes());
}

// What phase one has not joined: blocks closed inside the group (or all, if read directly), then the partial.
std::span<const DepthSource> ChunkRun::later_sources(int sublayer, const void* partial) {
  const SublayerPlan& own = plan_.sublayers[index(sublayer)];
  scale_sources(own.block);
  workspace_.sources.clear();
  const int first = reads_directly(sublayer) ? 0 : plan_.parts[index(own.part)].num_prior;
  for (int n = first; n < own.block; ++n) {
    workspace_.sources.push_back(source(n));
  }
  if (partial != nullptr) {
    workspace_.sources.push_back({partial, nullptr});
  }
  return workspace_.sources;
}

}  // namespace plumb::kernels_detail

// SPDX-License-Identifier: Apache-2.0
// gpu_case.hpp: calls the GPU operators on simulated blocks, with a poisoned workspace of exactly the promised size.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cuda/operators.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/support/cpu_case.hpp"
#include "support/catch.hpp"

namespace plumb::testing {

/// REQUIRES: fewer than 2^31 bytes. Guarded at the end: a write past it throws in the next call of `workspace`.
class GpuWorkspace {
 public:
  ~GpuWorkspace() noexcept(false) {
    if (std::uncaught_exceptions() == 0) {
      require_intact();
    }
  }

  void* operator()(const DepthProblem& problem, std::size_t num_sources, std::size_t num_queries) {
    require_intact();
    size_ = cuda_detail::table_bytes(problem.tokens, static_cast<int>(num_sources), static_cast<int>(num_queries));
    memory_.assign(size_ + 256 + kGuard, std::byte{0xff});
    const auto misfit = reinterpret_cast<std::uintptr_t>(memory_.data()) % 256;
    begin_ = memory_.data() + (misfit == 0 ? 0 : 256 - misfit);
    return begin_;
  }

 private:
  static constexpr std::size_t kGuard = 1024;
  void require_intact() const {
    for (std::size_t k = 0; begin_ != nullptr && k < kGuard; ++k) {
      if (begin_[size_ + k] != std::byte{0xff} && begin_ + size_ + k < memory_.data() + memory_.size()) {
        throw std::logic_error("an operator wrote past its workspace");
      }
    }
  }

  std::vector<std::byte> memory_;
  std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
};

/// The operators of the GPU by the names under which checks call those of any device.
template <class V>
class GpuRun {
 public:
  explicit GpuRun(simt::Order order = simt::Order::ascending, bool tensor_cores = false, int tokens_in_turn = 2)
      : gpu_(order), tensor_cores_(tensor_cores) {
    gpu_.take_in_turn(tokens_in_turn);
  }

  simt::Machine& gpu() { return gpu_; }

  void phase_one(const DepthProblem& problem, const PhaseOneForward& args) {
    Operators::phase_one(gpu_, problem, args, workspace_(problem, args.sources.size(), args.queries.size()),
                         tensor_cores_);
  }
  void aggregate(const DepthProblem& problem, const AggregateForward& args) {
    Operators::aggregate(gpu_, problem, args);
  }
  void merge(const DepthProblem& problem, const MergeForward& args) { Operators::merge(gpu_, problem, args); }
  void merge_backward(const DepthProblem& problem, const MergeBackward& args) {
    Operators::merge_backward(gpu_, problem, args, workspace_(problem, args.later.size(), 1));
  }
  void inter_block_backward(const DepthProblem& problem, const InterBlockBackward& args) {
    Operators::inter_block_backward(gpu_, problem, args, workspace_(problem, args.sources.size(), args.readers.size()),
                                    tensor_cores_);
  }
  /// Reduced by the GPU; the reference's own reduction must agree bit for bit.
  Rows<float> query_gradient(const DepthProblem& problem, Rows<float>& sums, const Rows<float>& query) {
    Rows<float> again = sums;
    const Rows<float> ones(static_cast<std::size_t>(problem.width), 1.0f);
    Rows<float> dq = zeros<float>(problem.width);
    Rows<float> dgain = dq;
    Operators::reduce_query_gradient(gpu_, problem, {sums.data(), query.data(), ones.data(), dq.data(), dgain.data()});
    CHECK(same_rows(dq, reduced_query_gradient(problem, again, query)));
    return dq;
  }

 private:
  using Operators = cuda_detail::Operators<V>;

  simt::Machine gpu_;
  GpuWorkspace workspace_;
  bool tensor_cores_;
};

/// What phase one writes. Where `sources` have no 1/rms, it is computed and handed out.
template <class V>
struct Mixtures {
  std::vector<Rows<V>> o;
  std::vector<Rows<float>> lse;
  std::vector<Rows<float>> scales;
  std::int64_t launches;

  Mixtures(GpuRun<V>& run, const DepthProblem& problem, const std::vector<DepthSource>& sources,
           const std::vector<Rows<float>>& queries)
      : o(queries.size(), not_a_number<V>(problem.tokens * problem.width)),
        lse(queries.size(), poison<float>(problem.tokens)),
        scales(sources.size(), poison<float>(problem.tokens)) {
    std::vector<PhaseOneQuery> all;
    for (std::size_t l = 0; l < o.size(); ++l) {
      all.push_back({queries[l].data(), o[l].data(), lse[l].data()});
    }
    std::vector<void*> scales_out;
    for (Rows<float>& each : scales) {
      scales_out.push_back(each.data());
    }
    run.phase_one(problem, {sources, all, false, scales_out});
    launches = run.gpu().num_launches();
  }

  bool same_bits(const Mixtures& other) const {
    bool same = true;
    for (std::size_t l = 0; l < o.size(); ++l) {
      same = same && same_rows(o[l], other.o[l]) && same_rows(lse[l], other.lse[l]);
    }
    for (std::size_t i = 0; i < scales.size(); ++i) {
      same = same && same_rows(scales[i], other.scales[i]);
    }
    return same;
  }
};

inline std::vector<DepthSource> without_scales(std::vector<DepthSource> sources) {
  for (DepthSource& each : sources) {
    each.inverse_rms = nullptr;
  }
  return sources;
}

}  // namespace plumb::testing

// SPDX-License-Identifier: Apache-2.0
// gpu_case.hpp: calls the GPU operators on simulated blocks, with a poisoned workspace of exactly the promised size.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cuda/operators.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/support/cpu_case.hpp"

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

}  // namespace plumb::testing

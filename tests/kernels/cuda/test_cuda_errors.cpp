// SPDX-License-Identifier: Apache-2.0
// What the CUDA runtime refuses comes back typed, with file, line and call. The refusal at hand is that of a machine
// without a GPU (and comes again with every call); on one with a GPU the operators are checked by bench/gpu.sh.
#include <cuda_runtime_api.h>

#include "cuda/cuda_error.hpp"
#include "kernels/support/cpu_case.hpp"
#include "plumb/kernels/cuda_operators.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

TEST_CASE("without a GPU every operator says which call failed and where", "[gpu]") {
  int devices = 0;
  const bool none = cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0;
  cudaGetLastError();
  if (!none) {
    WARN("not run: there is a GPU");
    return;
  }
  const CpuCase<Bf16> in(3, 16, 2, 1, 1.0);
  const auto sources = in.list();
  Rows<Bf16> h = not_a_number<Bf16>(3 * 16);
  Rows<float> lse = poison<float>(3);
  try {
    cuda::aggregate_forward(in.problem, {sources, in.queries[0].data(), h.data(), lse.data()}, {});
    FAIL("nothing was thrown");
  } catch (const cuda::CudaError& error) {
    const std::string text = error.what();
    CHECK(text.find("device_launch.cuh:") != std::string::npos);
    CHECK(text.find("cudaLaunchKernel(3 blocks of 32 threads)") != std::string::npos);
    CHECK(error.code() != cudaSuccess);
  }
  const std::vector<PhaseOneQuery> one = {{in.queries[0].data(), h.data(), lse.data()}};
  alignas(256) std::byte workspace[4096];
  try {
    cuda::phase_one_forward(in.problem, {sources, one}, {workspace, sizeof workspace, nullptr, true});
    FAIL("nothing was thrown");
  } catch (const cuda::CudaError& error) {
    const std::string text = error.what();
    CHECK(text.find("device_launch.cuh:") != std::string::npos);
    CHECK(text.find(": cuda") != std::string::npos);
  }
  CHECK(same_rows(h, not_a_number<Bf16>(3 * 16)));  // untouched
  CHECK_THROWS_AS(cuda::inverse_rms(in.problem, h.data(), lse.data(), {}), cuda::CudaError);
  CHECK_THROWS_AS(cuda::inverse_rms(in.problem, nullptr, lse.data(), {}), OperandError);
}

TEST_CASE("an error of the CUDA runtime carries its code, place and call, and success passes", "[gpu]") {
  CHECK_NOTHROW(cuda_detail::require_success(cudaSuccess, "cudaLaunchKernel", "here.cuh", 7));
  try {
    cuda_detail::require_success(cudaErrorInvalidValue, "cudaLaunchKernel(1 blocks)", "here.cuh", 7);
    FAIL("nothing was thrown");
  } catch (const cuda::CudaError& error) {
    CHECK(error.code() == cudaErrorInvalidValue);
    CHECK(std::string(error.what()).rfind("here.cuh:7: cudaLaunchKernel(1 blocks): cudaErrorInvalidValue: ", 0) == 0);
  }
}

// SPDX-License-Identifier: Apache-2.0
// cuda_error.hpp (private): what the CUDA runtime refuses, as a CudaError.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "plumb/kernels/cuda_operators.hpp"

namespace plumb::cuda_detail {

/// Throws CudaError with file, line and call, after clearing what the runtime has kept of the error.
inline void require_success(cudaError_t error, const std::string& call, const char* file, int line) {
  if (error == cudaSuccess) {
    return;
  }
  cudaGetLastError();
  throw cuda::CudaError(static_cast<int>(error), std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                                                     cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
}

}  // namespace plumb::cuda_detail

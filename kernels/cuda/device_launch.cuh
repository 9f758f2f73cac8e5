// SPDX-License-Identifier: Apache-2.0
// device_launch.cuh (private): launches kernel bodies on a stream. Nothing is allocated and nothing waits, so that
// calls can be captured in a graph.
#pragma once

#include <algorithm>
#include <string>

#include <cuda_runtime_api.h>

#include "cuda/cuda_error.hpp"
#include "cuda/device_thread.cuh"

namespace plumb::cuda_detail {

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1) run_kernel(const __grid_constant__ Kernel kernel) {
  DeviceThread thread;
  kernel(thread);
}

class DeviceLaunch {
 public:
  explicit DeviceLaunch(cudaStream_t stream) : stream_(stream) {}

  template <class Kernel>
  void operator()(const Kernel& kernel, const LaunchShape& shape) const {
    static_assert(sizeof(Kernel) <= 4096, "more than a kernel may have as parameters");
    void* parameters[] = {const_cast<Kernel*>(&kernel)};
    const dim3 grid(static_cast<unsigned>(shape.blocks));
    const dim3 block(static_cast<unsigned>(shape.threads));
    if (shape.shared_bytes > kSharedBytesUnasked) {
      require_success(cudaFuncSetAttribute(reinterpret_cast<const void*>(&run_kernel<Kernel>),
                                           cudaFuncAttributeMaxDynamicSharedMemorySize, shape.shared_bytes),
                      "cudaFuncSetAttribute(" + std::to_string(shape.shared_bytes) + " bytes of shared memory)",
                      __FILE__, __LINE__);
    }
    require_success(cudaLaunchKernel(reinterpret_cast<const void*>(&run_kernel<Kernel>), grid, block, parameters,
                                     static_cast<std::size_t>(shape.shared_bytes), stream_),
                    "cudaLaunchKernel(" + std::to_string(shape.blocks) + " blocks of " + std::to_string(shape.threads) +
                        " threads)",
                    __FILE__, __LINE__);
  }

  /// What a block may have. Decides how much is copied ahead, never about bits.
  int most_shared_bytes() const {
    return of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin, "shared memory per block");
  }

  /// So many that there are a few blocks for every multiprocessor, and time to copy ahead. Nor does this touch bits.
  int tokens_in_turn(std::int64_t tokens) const {
    const std::int64_t blocks = 4 * of_device(cudaDevAttrMultiProcessorCount, "multiprocessors");
    return static_cast<int>(std::clamp<std::int64_t>(tokens / blocks, 1, 16));
  }

 private:
  static constexpr int kSharedBytesUnasked = 48 << 10;

  static int of_device(cudaDeviceAttr attribute, const char* name) {
    int device = 0;
    int value = 0;
    require_success(cudaGetDevice(&device), "cudaGetDevice", __FILE__, __LINE__);
    require_success(cudaDeviceGetAttribute(&value, attribute, device),
                    std::string("cudaDeviceGetAttribute(") + name + ")", __FILE__, __LINE__);
    return value;
  }

  cudaStream_t stream_;
};

}  // namespace plumb::cuda_detail

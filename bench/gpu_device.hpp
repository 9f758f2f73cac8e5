// SPDX-License-Identifier: Apache-2.0
// gpu_device.hpp: memory, streams and times of the one GPU that gpu_check and gpu_measure run on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

namespace plumb::bench {

inline void require(cudaError_t error, const char* call) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
  }
}

/// A tensor on the GPU, from a host's vector or of a size, then filled with 0xff (NaN in every format).
template <class T>
class OnGpu {
 public:
  explicit OnGpu(std::size_t size) : size_(size) {
    require(cudaMalloc(reinterpret_cast<void**>(&data_), size * sizeof(T)), "cudaMalloc");
    require(cudaMemset(data_, 0xff, size * sizeof(T)), "cudaMemset");
  }
  explicit OnGpu(const std::vector<T>& rows) : OnGpu(rows.size()) {
    require(cudaMemcpy(data_, rows.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~OnGpu() { cudaFree(data_); }
  OnGpu(OnGpu&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  OnGpu& operator=(OnGpu&&) = delete;

  T* data() const { return data_; }
  std::size_t size_bytes() const { return size_ * sizeof(T); }
  void clear() { require(cudaMemset(data_, 0, size_bytes()), "cudaMemset"); }
  std::vector<T> rows() const {
    std::vector<T> out(size_);
    require(cudaMemcpy(out.data(), data_, size_bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return out;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

class Stream {
 public:
  Stream() { require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }
  void wait() const { require(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Median milliseconds of `call`, which launches on the stream, over `times` calls after one that is not counted.
template <class Call>
double milliseconds(const Stream& stream, int times, const Call& call) {
  cudaEvent_t begin;
  cudaEvent_t end;
  require(cudaEventCreate(&begin), "cudaEventCreate");
  require(cudaEventCreate(&end), "cudaEventCreate");
  call();
  std::vector<float> all;
  for (int k = 0; k < times; ++k) {
    require(cudaEventRecord(begin, stream.get()), "cudaEventRecord");
    call();
    require(cudaEventRecord(end, stream.get()), "cudaEventRecord");
    require(cudaEventSynchronize(end), "cudaEventSynchronize");
    float elapsed = 0;
    require(cudaEventElapsedTime(&elapsed, begin, end), "cudaEventElapsedTime");
    all.push_back(elapsed);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(all.begin(), all.end());
  return static_cast<double>(all[all.size() / 2]);
}

}  // namespace plumb::bench

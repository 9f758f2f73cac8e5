// SPDX-License-Identifier: Apache-2.0
// execution.hpp (private): what the body of a GPU kernel may use, so that one body serves the GPU and the host.
//
// A kernel is a plain struct of its operands with operator()(X& thread) const, run once per thread. X is DeviceThread
// (device_thread.cuh) on a GPU, or the thread of a simulated block in the tests. It offers
//   thread() num_threads() block()                 where this thread is: one-dimensional blocks, whole warps of 32
//   barrier() warp_barrier()                       of the block, of the warp; both order shared memory
//   shuffle_xor(float (&v)[N], mask)               exchange of N values within the warp; all lanes take part
//   shared<T>(offset_bytes, count) -> get(i), set(i, v), get2(i), get4(i)   4-byte elements of the block's memory
//   copy16(to, i, p, there) copy8                  starts a copy from global memory into elements i.. of `to`
//   commit_copies() wait_copies<N>()               closes a group of copies; waits until N groups are in flight. Then
//                                                  the thread itself sees what it copied, others after a barrier
//   load_matrices<transposed>(from, i) multiply<V>(d, a, b)   ldmatrix.x4, mma.m16n8k16 (mma_fragments.hpp)
//   load16(p) store16(p, w) load8(p)               aligned vector accesses to global memory, as 32-bit words
//   widen(value) narrow<V>(float)                  storage formats, to nearest even
//   fma exp log inverse_sqrt                       in fp32, correctly rounded or as the C library has them
// NOT in the interface: atomics, the number of blocks, clocks: nothing that could make bits depend on the machine.
#pragma once

#include <cstdint>

// The one macro: how a body is declared. A function for GPU and host at once would make nvcc check bodies for the host.
#if defined(__CUDACC__)
#define PLUMB_DEVICE __device__ __forceinline__
#else
#define PLUMB_DEVICE [[gnu::always_inline]] inline
#endif

namespace plumb::cuda_detail {

inline constexpr int kWarp = 32;

/// Grid, block and shared memory of one launch. `threads` is a multiple of kWarp.
struct LaunchShape {
  std::int64_t blocks = 0;
  int threads = 0;
  int shared_bytes = 0;
};

struct Words2 {
  std::uint32_t w[2];
};
struct Words4 {
  std::uint32_t w[4];
};

}  // namespace plumb::cuda_detail

// SPDX-License-Identifier: Apache-2.0
// device_thread.cuh (private): the X of a kernel body on a GPU. Compiled without contraction and without fast
// mathematics, so that what is rounded is what the body says.
#pragma once

#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/execution.hpp"
#include "plumb/kernels/number_formats.hpp"

namespace plumb::cuda_detail {

template <class T>
class DeviceShared {
 public:
  static_assert(sizeof(T) == 4);
  __device__ explicit DeviceShared(T* data) : data_(data) {}
  __device__ T get(int i) const { return data_[i]; }
  __device__ void set(int i, T value) { data_[i] = value; }
  __device__ Words4 get4(int i) const {
    const uint4 w = *reinterpret_cast<const uint4*>(data_ + i);
    return {{w.x, w.y, w.z, w.w}};
  }
  __device__ Words2 get2(int i) const {
    const uint2 w = *reinterpret_cast<const uint2*>(data_ + i);
    return {{w.x, w.y}};
  }
  __device__ unsigned address(int i) const { return static_cast<unsigned>(__cvta_generic_to_shared(data_ + i)); }

 private:
  T* data_;
};

class DeviceThread {
 public:
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int num_threads() const { return static_cast<int>(blockDim.x); }
  __device__ std::int64_t block() const { return blockIdx.x; }
  __device__ void barrier() { __syncthreads(); }
  __device__ void warp_barrier() { __syncwarp(); }

  template <int N>
  __device__ void shuffle_xor(float (&values)[N], int mask) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] = __shfl_xor_sync(0xffffffffu, values[k], mask);
    }
  }

  template <class T>
  __device__ DeviceShared<T> shared(int offset_bytes, int) {
    extern __shared__ float4 block_memory[];
    return DeviceShared<T>(reinterpret_cast<T*>(reinterpret_cast<char*>(block_memory) + offset_bytes));
  }

  // `from` is read only where `there`; otherwise zeros arrive.
  __device__ void copy16(const DeviceShared<std::uint32_t>& to, int i, const void* from, bool there = true) const {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to.address(i)),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
  }
  __device__ void copy8(const DeviceShared<std::uint32_t>& to, int i, const void* from, bool there = true) const {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to.address(i)),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 8 : 0)
                 : "memory");
  }
  __device__ void commit_copies() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int kGroups>
  __device__ void wait_copies() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
  }

  template <bool kTransposed>
  __device__ Words4 load_matrices(const DeviceShared<std::uint32_t>& from, int i) const {
    Words4 out;
    if constexpr (kTransposed) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(out.w[0]), "=r"(out.w[1]), "=r"(out.w[2]), "=r"(out.w[3])
                   : "r"(from.address(i))
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(out.w[0]), "=r"(out.w[1]), "=r"(out.w[2]), "=r"(out.w[3])
                   : "r"(from.address(i))
                   : "memory");
    }
    return out;
  }
  template <class V>
  __device__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) const {
    if constexpr (std::is_same_v<V, Bf16>) {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
  }

  __device__ Words4 load16(const void* p) const {
    const uint4 w = *static_cast<const uint4*>(p);
    return {{w.x, w.y, w.z, w.w}};
  }
  __device__ Words2 load8(const void* p) const {
    const uint2 w = *static_cast<const uint2*>(p);
    return {{w.x, w.y}};
  }
  // Written out: the compiler may make four stores of one to a struct.
  __device__ void store16(void* p, const Words4& words) const {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "r"(words.w[0]),
                 "r"(words.w[1]), "r"(words.w[2]), "r"(words.w[3])
                 : "memory");
  }

  __device__ static float widen(float value) { return value; }
  __device__ static float widen(Bf16 value) { return __uint_as_float(static_cast<unsigned>(value.bits) << 16); }
  __device__ static float widen(Fp16 value) { return __half2float(__ushort_as_half(value.bits)); }

  template <class V>
  __device__ static V narrow(float value) {
    if constexpr (sizeof(V) == 4) {
      return value;
    } else {
      return narrow_to(value, V{});
    }
  }

  __device__ static float bits_to_float(std::uint32_t bits) { return __uint_as_float(bits); }
  __device__ static std::uint32_t float_to_bits(float value) { return __float_as_uint(value); }
  __device__ static float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
  __device__ static float exp(float value) { return expf(value); }
  __device__ static float log(float value) { return logf(value); }
  __device__ static float inverse_sqrt(float value) { return __fdiv_rn(1.0f, __fsqrt_rn(value)); }

 private:
  __device__ static Bf16 narrow_to(float value, Bf16) { return {__bfloat16_as_ushort(__float2bfloat16_rn(value))}; }
  __device__ static Fp16 narrow_to(float value, Fp16) { return {__half_as_ushort(__float2half_rn(value))}; }
};

}  // namespace plumb::cuda_detail

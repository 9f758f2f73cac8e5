// SPDX-License-Identifier: Apache-2.0
// cpu_lanes_avx512.hpp (private): 16 floats in one AVX-512 register. See cpu_lanes_baseline.hpp for what each means.
#pragma once

#include <immintrin.h>

#include "plumb/kernels/number_formats.hpp"

namespace plumb::kernels_detail {

struct Avx512 {
  using F = __m512;

  // Register blocking; changes no bit.
  static constexpr int kDotRows = 4;
  static constexpr int kDotQueries = 6;
  static constexpr int kMixQueries = 6;
  static constexpr int kMixColumns = 4;
  static constexpr int kMixResident = 12;
  static constexpr int kPairs = 4;
  static constexpr int kUpdateSources = 8;
  static constexpr int kUpdateReaders = 8;
  static constexpr int kUpdateColumns = 2;

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  // One permutation puts each half-word into the upper half of its lane.
  static F load(const Bf16* p) {
    const __m512i bits = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    const __m512i lane = _mm512_set_epi32(15 << 16, 14 << 16, 13 << 16, 12 << 16, 11 << 16, 10 << 16, 9 << 16, 8 << 16,
                                          7 << 16, 6 << 16, 5 << 16, 4 << 16, 3 << 16, 2 << 16, 1 << 16, 0);
    return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, lane, bits));
  }
  static F load(const Fp16* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static void store(Bf16* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bf16(x)); }
  static void store(Fp16* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_fp16(x)); }
  static void stream(float* p, F x) { _mm512_stream_ps(p, x); }
  static void stream(Bf16* p, F x) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), to_bf16(x)); }
  static void stream(Fp16* p, F x) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), to_fp16(x)); }
  template <class T>
  static void store2(T* p, F x, F y) {
    store(p, x);
    store(p + 16, y);
  }
  static void store2(Bf16* p, F x, F y) { _mm512_storeu_si512(p, to_bf16(x, y)); }
  template <class T>
  static void stream2(T* p, F x, F y) {
    stream(p, x);
    stream(p + 16, y);
  }
  static void stream2(Bf16* p, F x, F y) { _mm512_stream_si512(reinterpret_cast<__m512i*>(p), to_bf16(x, y)); }
  static void fence() { _mm_sfence(); }
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
  static void prefetch_near(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F pow2(F t) {
    const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(exponent, _mm512_set1_epi32(0x3f800000)));
  }
  static F zero_below(F x, float limit, F value) {
    const __mmask16 below = _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_LT_OQ);
    return _mm512_mask_mov_ps(value, below, _mm512_setzero_ps());
  }
  static float sum(F x) {
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), high);
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }

 private:
  // Rounded in the upper half. Arithmetic only makes quiet NaNs; those keep their upper half as it is.
  static __m512i round_bf16(F x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __mmask16 number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
    return _mm512_mask_add_epi32(bits, number, bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  }
  static __m256i to_bf16(F x) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_bf16(x), 16)); }
  static __m512i to_bf16(F x, F y) {
    const __m512i upper_halves = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31,
                                                  29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(round_bf16(x), upper_halves, round_bf16(y));
  }
  static __m256i to_fp16(F x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
};

}  // namespace plumb::kernels_detail

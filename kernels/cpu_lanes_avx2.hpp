// SPDX-License-Identifier: Apache-2.0
// cpu_lanes_avx2.hpp (private): 16 floats in two AVX2 registers. See cpu_lanes_baseline.hpp for what each means.
#pragma once

#include <immintrin.h>

#include "plumb/kernels/number_formats.hpp"

namespace plumb::kernels_detail {

struct Avx2 {
  struct F {
    __m256 low;
    __m256 high;
  };

  // Register blocking; changes no bit.
  static constexpr int kDotRows = 2;
  static constexpr int kDotQueries = 2;
  static constexpr int kMixQueries = 2;
  static constexpr int kMixColumns = 2;
  static constexpr int kMixResident = 0;
  static constexpr int kPairs = 2;
  static constexpr int kUpdateSources = 4;
  static constexpr int kUpdateReaders = 4;
  static constexpr int kUpdateColumns = 1;

  static F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static F load(const Bf16* p) { return {widen(bits_at(p)), widen(bits_at(p + 8))}; }
  static F load(const Fp16* p) { return {_mm256_cvtph_ps(bits_at(p)), _mm256_cvtph_ps(bits_at(p + 8))}; }
  static void store(float* p, F x) {
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
  }
  static void store(Bf16* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bf16(x)); }
  static void store(Fp16* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_fp16(x)); }
  static void stream(float* p, F x) {
    _mm256_stream_ps(p, x.low);
    _mm256_stream_ps(p + 8, x.high);
  }
  static void stream(Bf16* p, F x) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), to_bf16(x)); }
  static void stream(Fp16* p, F x) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), to_fp16(x)); }
  template <class T>
  static void store2(T* p, const F& x, const F& y) {
    store(p, x);
    store(p + 16, y);
  }
  template <class T>
  static void stream2(T* p, const F& x, const F& y) {
    stream(p, x);
    stream(p + 16, y);
  }
  static void fence() { _mm_sfence(); }
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
  static void prefetch_near(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

  static F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static F mul(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static F div(F a, F b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
  static F add(F a, F b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static F sub(F a, F b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  static F max(F a, F b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
  static F pow2(F t) { return {pow2(t.low), pow2(t.high)}; }
  static F zero_below(F x, float limit, F value) {
    return {zero_below(x.low, limit, value.low), zero_below(x.high, limit, value.high)};
  }
  static float sum(F x) {
    const __m256 a = _mm256_add_ps(x.low, x.high);
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }

 private:
  static __m128i bits_at(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static __m256 widen(__m128i bits) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)); }
  static __m256 pow2(__m256 t) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(exponent, _mm256_set1_epi32(0x3f800000)));
  }
  static __m256 zero_below(__m256 x, float limit, __m256 value) {
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_LT_OQ), value);
  }
  // Arithmetic only makes quiet NaNs; those keep their upper half as it is.
  static __m256i round_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i number = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_ORD_Q));
    const __m256i up = _mm256_and_si256(_mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)), number);
    return _mm256_srli_epi32(_mm256_add_epi32(bits, up), 16);
  }
  static __m256i to_bf16(F x) {
    const __m256i packed = _mm256_packus_epi32(round_bf16(x.low), round_bf16(x.high));
    return _mm256_permute4x64_epi64(packed, 0xd8);
  }
  static __m256i to_fp16(F x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return _mm256_set_m128i(_mm256_cvtps_ph(x.high, kNearest), _mm256_cvtps_ph(x.low, kNearest));
  }
};

}  // namespace plumb::kernels_detail

// SPDX-License-Identifier: Apache-2.0
// cpu_lanes_baseline.hpp (private): 16 floats at a time without any instruction set extension: for every processor,
// and the definition of what the faster lanes do. Multiply-adds are rounded once here too, by a call of the C library:
// slow, but with the same bits.
#pragma once

#include <bit>
#include <cstdint>

#include "plumb/kernels/number_formats.hpp"

namespace plumb::kernels_detail {

struct Baseline {
  struct F {
    float lane[16];
  };

  // Register blocking; changes no bit.
  static constexpr int kDotRows = 1;
  static constexpr int kDotQueries = 1;
  static constexpr int kMixQueries = 1;
  static constexpr int kMixColumns = 1;
  static constexpr int kMixResident = 0;
  static constexpr int kPairs = 2;
  static constexpr int kUpdateSources = 1;
  static constexpr int kUpdateReaders = 1;
  static constexpr int kUpdateColumns = 1;

  static F zero() { return set(0); }
  static F set(float x) {
    return each([&](int) { return x; });
  }
  static F load(const float* p) {
    return each([&](int k) { return p[k]; });
  }
  static F load(const Bf16* p) {
    return each([&](int k) { return to_float(p[k]); });
  }
  static F load(const Fp16* p) {
    return each([&](int k) { return to_float(p[k]); });
  }
  static void store(float* p, const F& x) {
    for (int k = 0; k < 16; ++k) {
      p[k] = x.lane[k];
    }
  }
  static void store(Bf16* p, const F& x) {
    for (int k = 0; k < 16; ++k) {
      p[k] = to_bf16(x.lane[k]);
    }
  }
  static void store(Fp16* p, const F& x) {
    for (int k = 0; k < 16; ++k) {
      p[k] = to_fp16(x.lane[k]);
    }
  }
  /// A store that need not pass through the caches. REQUIRES: 64-byte aligned rows of whole lines.
  template <class T>
  static void stream(T* p, const F& x) {
    store(p, x);
  }
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
  /// Makes streamed stores visible to whoever is told next.
  static void fence() {}
  static void prefetch(const void*) {}
  static void prefetch_near(const void*) {}

  static F fma(const F& a, const F& b, const F& c) {
    return each([&](int k) { return __builtin_fmaf(a.lane[k], b.lane[k], c.lane[k]); });
  }
  static F mul(const F& a, const F& b) {
    return each([&](int k) { return a.lane[k] * b.lane[k]; });
  }
  static F div(const F& a, const F& b) {
    return each([&](int k) { return a.lane[k] / b.lane[k]; });
  }
  static F add(const F& a, const F& b) {
    return each([&](int k) { return a.lane[k] + b.lane[k]; });
  }
  static F sub(const F& a, const F& b) {
    return each([&](int k) { return a.lane[k] - b.lane[k]; });
  }
  /// The second where either is NaN.
  static F max(const F& a, const F& b) {
    return each([&](int k) { return a.lane[k] > b.lane[k] ? a.lane[k] : b.lane[k]; });
  }
  /// 2^n for the integer n in the low bits of t = 1.5 * 2^23 + n.
  static F pow2(const F& t) {
    return each(
        [&](int k) { return std::bit_cast<float>((std::bit_cast<std::uint32_t>(t.lane[k]) << 23) + 0x3f800000u); });
  }
  /// 0 where x < limit, else value.
  static F zero_below(const F& x, float limit, const F& value) {
    return each([&](int k) { return x.lane[k] < limit ? 0.0f : value.lane[k]; });
  }
  /// Lanes k and k + 8 first, then k + 4, k + 2, k + 1.
  static float sum(const F& x) {
    float lane[16];
    store(lane, x);
    for (int half = 8; half > 0; half /= 2) {
      for (int k = 0; k < half; ++k) {
        lane[k] += lane[k + half];
      }
    }
    return lane[0];
  }

 private:
  template <class Value>
  static F each(Value value) {
    F out;
    for (int k = 0; k < 16; ++k) {
      out.lane[k] = value(k);
    }
    return out;
  }
};

}  // namespace plumb::kernels_detail

// SPDX-License-Identifier: Apache-2.0
// counter_rng.hpp: random numbers that are a pure function of (seed, name, index).
//
// Two parameters with different names draw unrelated streams; element i of a parameter is the same number in whatever
// order, layout or process it is drawn. It is NOT cryptographic. The bits are those of splitmix64 evaluated at a
// counter. Threads: a const object; draws share nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace plumb {

class CounterRng {
 public:
  CounterRng(std::uint64_t seed, std::string_view name);

  /// 64 random bits.
  std::uint64_t bits(std::uint64_t index) const;

  /// Uniform in [0, 1), a multiple of 2^-53.
  double uniform(std::uint64_t index) const;

  /// Standard normal by Box and Muller; uses bits 2*index and 2*index+1.
  double normal(std::uint64_t index) const;

 private:
  std::uint64_t key_;
};

/// out[i] = mean + stddev * rng.normal(i), formed in double and rounded once.
void fill_normal(const CounterRng& rng, double mean, double stddev, std::span<float> out);
void fill_normal(const CounterRng& rng, double mean, double stddev, std::span<double> out);

}  // namespace plumb

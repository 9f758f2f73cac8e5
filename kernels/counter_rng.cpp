// SPDX-License-Identifier: Apache-2.0
#include "plumb/kernels/counter_rng.hpp"

#include <cmath>
#include <cstddef>
#include <numbers>

namespace plumb {

namespace {

// The output function of splitmix64: a bijection of 64 bits in which every input bit reaches every output bit.
std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// FNV-1a, 64 bits.
std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return value;
}

constexpr std::uint64_t kGoldenStep = 0x9e3779b97f4a7c15ULL;

template <class T>
void fill(const CounterRng& rng, double mean, double stddev, std::span<T> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<T>(mean + stddev * rng.normal(i));
  }
}

}  // namespace

CounterRng::CounterRng(std::uint64_t seed, std::string_view name)
    : key_(scramble(hash(name) + scramble(seed + kGoldenStep))) {}

// Scrambled twice, so that the streams of two keys that differ by a few steps are not shifted copies of each other.
std::uint64_t CounterRng::bits(std::uint64_t index) const {
  return scramble(key_ ^ scramble((index + 1) * kGoldenStep));
}

double CounterRng::uniform(std::uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1.0p-53; }

double CounterRng::normal(std::uint64_t index) const {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(2 * index)));  // 1 - u lies in (0, 1]
  return radius * std::cos(2.0 * std::numbers::pi * uniform(2 * index + 1));
}

void fill_normal(const CounterRng& rng, double mean, double stddev, std::span<float> out) {
  fill(rng, mean, stddev, out);
}
void fill_normal(const CounterRng& rng, double mean, double stddev, std::span<double> out) {
  fill(rng, mean, stddev, out);
}

}  // namespace plumb

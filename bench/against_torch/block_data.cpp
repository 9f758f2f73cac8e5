// SPDX-License-Identifier: Apache-2.0
#include "block_data.hpp"

#include <cmath>
#include <limits>

namespace plumb::bench {
namespace {

// Uniform numbers of the given mean and half width: splitmix64 at a counter, cheap for gigabytes.
Lines random(std::int64_t count, std::uint64_t seed, float mean, float half_width) {
  Lines rows(static_cast<std::size_t>(count) * sizeof(float));
  for (std::int64_t k = 0; k < count; ++k) {
    std::uint64_t bits = static_cast<std::uint64_t>(k) * 0x9e3779b97f4a7c15u + seed * 0xd1b54a32d192ed03u;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    const float value = static_cast<float>(static_cast<std::int32_t>((bits ^ (bits >> 31)) >> 32)) * 0x1p-31f;
    rows.as<float>()[k] = mean + half_width * value;
  }
  return rows;
}

}  // namespace

BlockData::BlockData(const BlockShape& shape_in)
    : shape(shape_in), grad_closed(random(shape.tokens * shape.width, 1, 0, 1)) {
  const std::int64_t values = shape.tokens * shape.width;
  std::uint64_t seed = 2;
  for (int i = 0; i < shape.num_sources; ++i) {
    sources.push_back(random(values, seed++, 0, 1));
  }
  for (int l = 0; l < shape.num_sublayers; ++l) {
    outputs.push_back(random(values, seed++, 0, 1));
    grad_h.push_back(random(values, seed++, 0, 1));
    queries.push_back(random(shape.width, seed++, 0, 0.05f));
    gains.push_back(random(shape.width, seed++, 1, 0.2f));
  }
}

double relative_difference(const BlockResults::Rows& a, const BlockResults::Rows& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double size = 0;
  for (std::size_t r = 0; r < a.size(); ++r) {
    if (a[r].size() != b[r].size()) return std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < a[r].size(); ++k) {
      const double apart = static_cast<double>(a[r][k]) - static_cast<double>(b[r][k]);
      difference += apart * apart;
      size += static_cast<double>(b[r][k]) * static_cast<double>(b[r][k]);
    }
  }
  return std::sqrt(difference / size);
}

}  // namespace plumb::bench

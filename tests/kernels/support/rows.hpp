// SPDX-License-Identifier: Apache-2.0
// rows.hpp: small tensors for tests, as plain vectors, with random contents and comparisons.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "plumb/kernels/counter_rng.hpp"
#include "plumb/kernels/depth_attention.hpp"
#include "plumb/kernels/storage.hpp"

namespace plumb::testing {

template <class T>
using Rows = std::vector<T>;

template <class T>
constexpr Storage kStorage = sizeof(T) == 8 ? Storage::fp64 : Storage::fp32;

template <class T>
Rows<T> random_rows(const std::string& name, std::int64_t size, double scale = 1.0, double mean = 0.0) {
  Rows<T> out(static_cast<std::size_t>(size));
  fill_normal(CounterRng(7, name), mean, scale, std::span<T>(out));
  return out;
}

/// NaN everywhere: what is not overwritten shows.
template <class T>
Rows<T> poison(std::int64_t size) {
  return Rows<T>(static_cast<std::size_t>(size), std::numeric_limits<T>::quiet_NaN());
}

template <class T>
Rows<T> zeros(std::int64_t size) {
  return Rows<T>(static_cast<std::size_t>(size), T(0));
}

template <class To, class From>
Rows<To> convert(const Rows<From>& in) {
  return Rows<To>(in.begin(), in.end());
}

template <class T>
bool same_bits(const Rows<T>& a, const Rows<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// max |a - b| / max |b|; the absolute difference when b is zero. NaN compares as infinite.
template <class A, class B>
double relative_difference(const Rows<A>& a, const Rows<B>& b) {
  if (a.size() != b.size()) {
    return std::numeric_limits<double>::infinity();
  }
  double difference = 0;
  double scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double gap = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(gap <= std::numeric_limits<double>::max())) {
      return std::numeric_limits<double>::infinity();
    }
    difference = std::max(difference, gap);
    scale = std::max(scale, std::abs(static_cast<double>(b[i])));
  }
  return scale > 0 ? difference / scale : difference;
}

/// |a - b|_2 / |b|_2
template <class A, class B>
double relative_l2(const Rows<A>& a, const Rows<B>& b) {
  double difference = 0;
  double scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double gap = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += gap * gap;
    scale += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / scale);
}

/// The sources of one aggregate, in separate buffers, with their 1/rms.
template <class T>
struct SourceSet {
  std::vector<Rows<T>> values;
  std::vector<Rows<T>> scales;

  SourceSet(const DepthProblem& problem, int count, const std::string& name, double scale = 1.0) {
    for (int i = 0; i < count; ++i) {
      values.push_back(
          random_rows<T>(name + "/" + std::to_string(i), problem.tokens * problem.width, scale * (1.0 + 0.5 * i)));
      scales.push_back(poison<T>(problem.tokens));
    }
    rescale(problem);
  }

  void rescale(const DepthProblem& problem) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      inverse_rms(problem, values[i].data(), scales[i].data());
    }
  }

  std::vector<DepthSource> list() const {
    std::vector<DepthSource> out;
    for (std::size_t i = 0; i < values.size(); ++i) {
      out.push_back({values[i].data(), scales[i].data()});
    }
    return out;
  }
};

/// |got - expected|_2 / |expected|_2 of a row, root of the mean square over the rows.
inline double rms_of_rows(const Rows<double>& got, const Rows<double>& expected, std::size_t width) {
  double sum = 0;
  for (std::size_t begin = 0; begin < got.size(); begin += width) {
    double error = 0;
    double scale = 0;
    for (std::size_t k = begin; k < begin + width; ++k) {
      error += (got[k] - expected[k]) * (got[k] - expected[k]);
      scale += expected[k] * expected[k];
    }
    sum += error / scale;
  }
  return std::sqrt(sum * static_cast<double>(width) / static_cast<double>(got.size()));
}

}  // namespace plumb::testing

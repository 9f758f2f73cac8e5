// SPDX-License-Identifier: Apache-2.0
// naive.hpp: the definition of depth attention in double, written for the eye; shares no code with the library.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/support/rows.hpp"

namespace plumb::testing {

/// One aggregate over `sources`, each [tokens, width]; `w` query, `g` gain on the normalised key.
struct NaiveAggregate {
  std::int64_t tokens;
  std::int64_t width;
  double eps;

  struct Result {
    Rows<double> h;
    Rows<double> lse;
    std::vector<Rows<double>> s;  // [source][token]
    std::vector<Rows<double>> p;
  };

  Result operator()(const std::vector<Rows<double>>& sources, const Rows<double>& w, const Rows<double>& g) const {
    const std::size_t n = sources.size();
    Result out{zeros<double>(tokens * width), zeros<double>(tokens), {}, {}};
    out.s.assign(n, zeros<double>(tokens));
    out.p = out.s;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto at = [&](std::int64_t j) { return static_cast<std::size_t>(t * width + j); };
      const auto token = static_cast<std::size_t>(t);
      double sum = 0;
      for (std::size_t i = 0; i < n; ++i) {
        double squares = 0;
        for (std::int64_t j = 0; j < width; ++j) {
          squares += sources[i][at(j)] * sources[i][at(j)];
        }
        const double rms = std::sqrt(squares / static_cast<double>(width) + eps);
        for (std::int64_t j = 0; j < width; ++j) {
          const auto c = static_cast<std::size_t>(j);
          const double key = sources[i][at(j)] / rms * g[c];
          out.s[i][token] += w[c] * key;
        }
        sum += std::exp(out.s[i][token]);
      }
      out.lse[token] = std::log(sum);
      for (std::size_t i = 0; i < n; ++i) {
        out.p[i][token] = std::exp(out.s[i][token]) / sum;
        for (std::int64_t j = 0; j < width; ++j) {
          out.h[at(j)] += out.p[i][token] * sources[i][at(j)];
        }
      }
    }
    return out;
  }
};

}  // namespace plumb::testing

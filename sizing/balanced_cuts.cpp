// SPDX-License-Identifier: Apache-2.0
#include "balanced_cuts.hpp"

#include <algorithm>
#include <cmath>

namespace plumb {
namespace {

class Balance {
 public:
  Balance(std::span<const double> weights, double tail, int chunks) : chunks_(chunks), sums_(weights.size() + 1) {
    for (std::size_t i = 0; i < weights.size(); ++i)
      sums_[i + 1] = sums_[i] + weights[i];
    // The tail lies on a layer that cannot be cut from the one before it.
    sums_.back() += tail;
  }

  std::vector<int> cuts() {
    const double limit = least_limit();
    const std::vector<int> earliest = from_behind(limit);
    std::vector<int> ends;
    int before = 0;
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      const int least = std::max(before + 1, earliest[static_cast<std::size_t>(chunk)]);
      const int most = std::min(reach(before, limit), layers() - (chunks_ - 1 - chunk));
      before = std::clamp(nearest_to_share(chunk + 1), least, most);
      ends.push_back(before);
    }
    return ends;
  }

 private:
  int layers() const { return static_cast<int>(sums_.size()) - 1; }
  double sum(int layer) const { return sums_[static_cast<std::size_t>(layer)]; }

  // How far a chunk that begins at `from` may go.
  int reach(int from, double limit) const {
    const auto past = std::upper_bound(sums_.begin() + from, sums_.end(), sum(from) + limit);
    return std::max(from, static_cast<int>(past - sums_.begin()) - 1);
  }

  bool fits(double limit) const {
    int at = 0;
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      // Those behind need a layer each.
      const int next = std::min(reach(at, limit), layers() - (chunks_ - 1 - chunk));
      if (next == at) return false;
      at = next;
    }
    return at == layers();
  }

  // Every limit that matters is the weight of some run of layers; the search is over doubles, down to their last bit.
  double least_limit() const {
    double low = 0;
    double high = sums_.back();
    while (true) {
      const double middle = low + (high - low) / 2;
      if (middle <= low || middle >= high) return high;
      (fits(middle) ? high : low) = middle;
    }
  }

  // The first layer at which chunk c may end so that those behind it still fit.
  std::vector<int> from_behind(double limit) const {
    std::vector<int> earliest(static_cast<std::size_t>(chunks_));
    int end = layers();
    for (int chunk = chunks_ - 1; chunk >= 0; --chunk) {
      earliest[static_cast<std::size_t>(chunk)] = end;
      int begin = end - 1;
      while (begin > 0 && reach(begin - 1, limit) >= end)
        --begin;
      end = std::max(begin, chunk);
    }
    return earliest;
  }

  int nearest_to_share(int chunks_before) const {
    const double share = sums_.back() * chunks_before / chunks_;
    const auto after = std::lower_bound(sums_.begin(), sums_.end(), share);
    const int at = std::min(static_cast<int>(after - sums_.begin()), layers());  // a share of all may round above all
    return at > 0 && share - sum(at - 1) < sum(at) - share ? at - 1 : at;
  }

  int chunks_;
  std::vector<double> sums_;  // before each layer; the last includes the tail
};

}  // namespace

std::vector<int> balanced_cuts(std::span<const double> weights, double tail, int chunks) {
  return Balance(weights, tail, chunks).cuts();
}

}  // namespace plumb

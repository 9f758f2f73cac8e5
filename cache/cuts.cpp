// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/cuts.hpp"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <limits>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

constexpr std::int64_t max_states = std::int64_t{1} << 26;

struct Cost {
  std::int64_t traffic = 0;   // units sent per microbatch, up to a constant
  std::int64_t distance = 0;  // from the even cuts
  friend auto operator<=>(const Cost&, const Cost&) = default;
};

// The traffic of a split is a sum over its cuts. A block closed by chunk c costs w(c) = min(P-1, C-1-c), so all blocks
// cost sum_c w(c) (E(x_c) - E(x_{c-1})), E(x) = blocks ended by x; by summation by parts that is a constant plus
// sum_c (w(c) - w(c+1)) E(x_c). An open partial costs 1 where its cut joins two ranks. Naive sends E(x_c) blocks on
// each such cut instead.
class CutCosts {
 public:
  CutCosts(const Layout& layout, const CutRequest& request, std::vector<int> even)
      : layout_(layout),
        request_(request),
        sublayers_per_unit_(request.sublayers / request.units),
        even_(std::move(even)) {}

  // Chunk `chunk`, not the last one, ends after `units`.
  Cost of(int chunk, int units) const {
    const bool crosses = layout_.rank_of(ChunkId(chunk)) != layout_.rank_of(ChunkId(chunk + 1));
    const int cut = units * sublayers_per_unit_;
    const bool at_end = cut == request_.sublayers;
    const std::int64_t ended = at_end ? (request_.sublayers - 1) / request_.block + 1 : cut / request_.block;
    const bool is_naive = request_.policy == Policy::naive;
    const std::int64_t weight = is_naive ? (crosses ? 1 : 0) : readers_after(chunk) - readers_after(chunk + 1);
    const bool partial = crosses && !at_end && cut % request_.block != 0;
    return {weight * ended + (partial ? 1 : 0),
            std::abs(cut - even_[static_cast<std::size_t>(chunk)]) / sublayers_per_unit_};
  }

 private:
  std::int64_t readers_after(int chunk) const { return std::min(layout_.pp() - 1, layout_.num_chunks() - 1 - chunk); }

  const Layout& layout_;
  const CutRequest& request_;
  int sublayers_per_unit_;
  std::vector<int> even_;
};

// What chunk c may have reached so that the chunks after it can still take the rest: a band of slack + 1 values.
struct Band {
  int chunks;
  int units;
  int heaviest;

  int low(int chunk) const {
    return static_cast<int>(std::max<std::int64_t>(0, units - std::int64_t{chunks - 1 - chunk} * heaviest));
  }
  int high(int chunk) const {
    return static_cast<int>(std::min<std::int64_t>(units, (std::int64_t{chunk} + 1) * heaviest));
  }
};

}  // namespace

std::vector<int> least_traffic_cuts(const Layout& layout, const CutRequest& request) {
  const int chunks = layout.num_chunks();
  std::vector<int> even = DepthMap::even_cuts(request.sublayers, request.units, chunks);
  (void)DepthMap(request.sublayers, request.block, even, request.residual);  // refuses what cannot be
  if (request.residual == Residual::standard) return even;
  const Band band{chunks, request.units, (request.units - 1) / chunks + 1};
  const std::int64_t width =
      std::min<std::int64_t>(request.units, std::int64_t{chunks} * band.heaviest - request.units);
  if ((width + 1) * chunks > max_states) {
    throw InputError(
        fmt::format("the least traffic over {} chunks with a slack of {} would need {} states, at most {} "
                    "are tried: use even cuts",
                    chunks, width, (width + 1) * chunks, max_states));
  }
  const CutCosts costs(layout, request, std::move(even));

  // best[x] = least cost of chunks 0..c with x_c = low(c) + x; from[c] holds the x_{c-1} that gives it.
  std::vector<std::vector<std::int32_t>> from(static_cast<std::size_t>(chunks));
  std::vector<Cost> before{Cost{}};  // nothing cut yet: x = 0
  int before_low = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int low = band.low(chunk);
    const int high = band.high(chunk);
    std::vector<Cost> best(static_cast<std::size_t>(high - low) + 1);
    std::vector<std::int32_t>& origin = from[static_cast<std::size_t>(chunk)];
    origin.resize(best.size());
    // The cheapest predecessor within reach, by a window whose costs rise from front to back.
    std::deque<int> window;
    int next = before_low;
    const int end = before_low + static_cast<int>(before.size());
    const auto cost_before = [&](int x) { return before[static_cast<std::size_t>(x - before_low)]; };
    for (int x = low; x <= high; ++x) {
      for (; next <= x && next < end; ++next) {
        while (!window.empty() && cost_before(window.back()) > cost_before(next))
          window.pop_back();
        window.push_back(next);
      }
      while (window.front() < x - band.heaviest)
        window.pop_front();
      const Cost here = chunk + 1 < chunks ? costs.of(chunk, x) : Cost{};
      const Cost there = cost_before(window.front());
      best[static_cast<std::size_t>(x - low)] = {there.traffic + here.traffic, there.distance + here.distance};
      origin[static_cast<std::size_t>(x - low)] = window.front();
    }
    before = std::move(best);
    before_low = low;
  }

  std::vector<int> cuts(static_cast<std::size_t>(chunks));
  int x = request.units;
  for (int chunk = chunks - 1; chunk >= 0; --chunk) {
    cuts[static_cast<std::size_t>(chunk)] = x * (request.sublayers / request.units);
    x = from[static_cast<std::size_t>(chunk)][static_cast<std::size_t>(x - band.low(chunk))];
  }
  return cuts;
}

}  // namespace plumb

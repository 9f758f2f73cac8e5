// SPDX-License-Identifier: Apache-2.0
#include "periods.hpp"

#include <algorithm>
#include <optional>

namespace plumb {
namespace {

constexpr int num_probes = 24;
constexpr std::int64_t min_count = 3;
constexpr int max_found = 8;

class Finder {
 public:
  Finder(const Program& program, const Timeline& timeline) : program_(program), timeline_(timeline) {}

  // The repetition around `at` that spares the most, told from rank 0's first action there and its later likes.
  std::optional<Periods> around(SimTime at) const {
    std::optional<Periods> best;
    const std::vector<ComputeStep>& steps = program_.ranks[0].compute;
    const std::vector<ComputeTimes>& times = timeline_.ranks[0].compute;
    const std::size_t here = first_from(0, at);
    int num_found = 0;
    const int max_shift = std::max(64, 4 * program_.layout.pp());
    for (std::size_t i = here + 1; i < steps.size(); ++i) {
      if (!alike(steps[here], steps[i])) continue;
      const int shift = steps[i].compute.microbatch.value - steps[here].compute.microbatch.value;
      if (shift == 0 || std::abs(shift) > max_shift) break;
      const auto found = with(times[here].start, times[i].start - times[here].start, shift);
      if (found && (!best || spared(*found) > spared(*best))) best = found;
      if (found && ++num_found == max_found) break;  // multiples of the first, mostly
    }
    return best;
  }

 private:
  static SimTime spared(const Periods& periods) { return (periods.count - 2) * periods.length; }

  static bool alike(const ComputeStep& a, const ComputeStep& b) {
    return a.compute.op == b.compute.op && a.compute.chunk == b.compute.chunk && a.overlaps_next == b.overlaps_next;
  }

  std::size_t first_from(std::size_t rank, SimTime at) const {
    const std::vector<ComputeTimes>& times = timeline_.ranks[rank].compute;
    return static_cast<std::size_t>(
        std::partition_point(times.begin(), times.end(), [&](const ComputeTimes& t) { return t.start < at; }) -
        times.begin());
  }

  bool repeats(std::size_t rank, std::size_t i, std::size_t j, SimTime length, int shift) const {
    const ComputeStep& a = program_.ranks[rank].compute[i];
    const ComputeStep& b = program_.ranks[rank].compute[j];
    const ComputeTimes& at = timeline_.ranks[rank].compute[i];
    const ComputeTimes& bt = timeline_.ranks[rank].compute[j];
    return alike(a, b) && b.compute.microbatch.value - a.compute.microbatch.value == shift &&
           bt.start - at.start == length && bt.end - at.end == length && bt.exposed == at.exposed;
  }

  std::optional<Periods> with(SimTime at, SimTime length, int shift) const {
    if (length.count() <= 0) return std::nullopt;
    SimTime low{0};
    SimTime high = timeline_.step;
    for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) {
      const std::vector<ComputeTimes>& times = timeline_.ranks[rank].compute;
      std::size_t begin = first_from(rank, at);
      const std::size_t stride = first_from(rank, at + length) - begin;
      if (stride == 0) return std::nullopt;
      std::size_t end = begin;
      while (end + stride < times.size() && repeats(rank, end, end + stride, length, shift))
        ++end;
      while (begin > 0 && begin + stride - 1 < times.size() &&
             repeats(rank, begin - 1, begin - 1 + stride, length, shift))
        --begin;
      if (begin == end) return std::nullopt;
      low = std::max(low, times[begin].start);
      high = std::min(high, times[end - 1 + stride].end);
      if ((high - low) / length < min_count) return std::nullopt;
    }
    return Periods{low, length, (high - low) / length};
  }

  const Program& program_;
  const Timeline& timeline_;
};

}  // namespace

std::vector<Periods> find_periods(const Program& program, const Timeline& timeline) {
  const Finder finder(program, timeline);
  std::vector<Periods> all;
  for (int probe = 1; probe < num_probes; ++probe) {
    const SimTime at = timeline.step / num_probes * probe;
    if (!all.empty() && at < all.back().end()) continue;
    auto found = finder.around(at);
    if (!found) continue;
    if (!all.empty() && found->begin < all.back().end()) {  // what was found before stays
      const std::int64_t inside = (all.back().end() - found->begin - SimTime(1)) / found->length + 1;
      found->begin += inside * found->length;
      found->count -= inside;
    }
    if (found->count >= min_count) all.push_back(*found);
  }
  return all;
}

}  // namespace plumb

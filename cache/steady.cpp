// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/steady.hpp"

#include <algorithm>

namespace plumb {
namespace {

bool same_but_microbatch(const Compute& a, const Compute& b) { return a.op == b.op && a.chunk == b.chunk; }

bool is_later(const Compute& later, const Compute& earlier, int microbatches) {
  return same_but_microbatch(later, earlier) && later.microbatch.value == earlier.microbatch.value + microbatches;
}

bool is_later(const Action& later, const Action& earlier, int microbatches) {
  if (later.second.has_value() != earlier.second.has_value()) return false;
  return is_later(later.first, earlier.first, microbatches) &&
         (!later.second || is_later(*later.second, *earlier.second, microbatches));
}

constexpr std::size_t fewest_periods = 4;

// Positions looked at per action of the row, so that a row without order costs no more than a multiple of its length.
constexpr std::size_t looks_per_action = 64;

}  // namespace

std::size_t steady_until(const std::vector<Action>& row, std::size_t from, std::size_t actions, int microbatches) {
  std::size_t end = from;
  while (end < row.size() && is_later(row[end], row[end - actions], microbatches))
    ++end;
  return end;
}

std::vector<SteadyStretch> steady_stretches(const std::vector<Action>& row) {
  std::vector<SteadyStretch> stretches;
  std::size_t looks_left = looks_per_action * row.size();
  for (std::size_t begin = 0; begin < row.size() && looks_left > 0;) {
    SteadyStretch best{.begin = begin, .end = begin + 1, .actions = 1, .microbatches = 0};
    // A repetition within the best stretch so far has a multiple of its period and ends where it ends.
    for (std::size_t next = begin + 1; next < row.size() && looks_left > 0; next = std::max(next + 1, best.end)) {
      --looks_left;
      const int microbatches = row[next].first.microbatch.value - row[begin].first.microbatch.value;
      if (microbatches == 0 || !same_but_microbatch(row[next].first, row[begin].first)) continue;
      const std::size_t end = steady_until(row, next, next - begin, microbatches);
      looks_left -= std::min(looks_left, end - next);
      const bool periods_enough = end - begin >= fewest_periods * (next - begin);
      if (periods_enough && end > best.end) best = {begin, end, next - begin, microbatches};
    }
    if (best.microbatches != 0) stretches.push_back(best);
    begin = best.end;
  }
  return stretches;
}

}  // namespace plumb

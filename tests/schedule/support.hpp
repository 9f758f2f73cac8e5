// SPDX-License-Identifier: Apache-2.0
//
// support.hpp: what several schedule tests need.
#pragma once

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "plumb/schedule/schedule.hpp"
#include "support/catch.hpp"
#include "support/refusals.hpp"

namespace plumb::test {

// The text of the InputError that `call` must throw; always one line.
template <class Call>
std::string input_error_of(Call&& call) {
  const std::string text = refusal_of(call);
  if (text.empty()) FAIL("no InputError was thrown");
  CHECK(text.find('\n') == std::string::npos);
  return text;
}

// One to three characters of `text` changed, or so many inserted, from `alphabet`.
inline std::string damaged(std::string text, std::string_view alphabet, bool insert, std::mt19937& random) {
  for (int edits = std::uniform_int_distribution(1, 3)(random); edits > 0; --edits) {
    const auto at = std::uniform_int_distribution<std::size_t>(0, text.size() - 1)(random);
    const char c = alphabet[std::uniform_int_distribution<std::size_t>(0, alphabet.size() - 1)(random)];
    text.replace(at, insert ? 0 : 1, 1, c);
  }
  return text;
}

inline std::string data_file(const std::string& name) {
  std::ifstream file(std::string(PLUMB_SCHEDULE_TEST_DATA) + "/" + name, std::ios::binary);
  if (!file) throw std::runtime_error("no test data " + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct UnitTimes {
  double forward = 1;
  double backward = 2;  // I and W take half of it each
};

// Time at which the last action ends if messages are instant and every rank does one action at a time, in its order:
// the longest path through the table. Nothing if some action can never start. Written without the library's own order
// check, by sweeping over the ranks until nothing moves.
inline std::optional<double> makespan(const Schedule& schedule, UnitTimes times = {}) {
  const Layout& layout = schedule.layout;
  const auto index = [&](ChunkId c, Microbatch m) {
    return c.index() * static_cast<std::size_t>(layout.microbatches()) + m.index();
  };
  const std::size_t size = index(ChunkId(layout.num_chunks()), Microbatch(0));
  constexpr double never = -1;
  std::vector<double> forward_end(size, never), backward_end(size, never);
  std::vector<double> rank_free(schedule.ranks.size(), 0);
  std::vector<std::size_t> next(schedule.ranks.size(), 0);
  const auto inputs_ready = [&](const Compute& c) -> double {
    const std::size_t own = index(c.chunk, c.microbatch);
    if (c.op == Op::forward) return c.chunk.value == 0 ? 0 : forward_end[index(c.chunk.previous(), c.microbatch)];
    if (c.op == Op::backward_weight) return backward_end[own];
    if (c.chunk.value == layout.num_chunks() - 1 || forward_end[own] < 0) return forward_end[own];
    return backward_end[index(c.chunk.next(), c.microbatch)];
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < next.size(); ++r) {
      for (; next[r] < schedule.ranks[r].size(); ++next[r], moved = true) {
        const Action& action = schedule.ranks[r][next[r]];
        std::vector<Compute> computes{action.first};
        if (action.second) computes.push_back(*action.second);
        double start = rank_free[r];
        bool ready = true;
        for (const Compute& c : computes) {
          ready = ready && inputs_ready(c) >= 0;
          start = std::max(start, inputs_ready(c));
        }
        if (!ready) break;
        for (const Compute& c : computes) {
          const bool split = c.op == Op::backward_input || c.op == Op::backward_weight;
          start += c.op == Op::forward ? times.forward : times.backward * (split ? 0.5 : 1);
        }
        for (const Compute& c : computes) {
          if (c.op == Op::backward_weight) continue;
          (c.op == Op::forward ? forward_end : backward_end)[index(c.chunk, c.microbatch)] = start;
        }
        rank_free[r] = start;
      }
    }
  }
  for (std::size_t r = 0; r < next.size(); ++r) {
    if (next[r] != schedule.ranks[r].size()) return std::nullopt;
  }
  return *std::max_element(rank_free.begin(), rank_free.end());
}

// Most forwards alive (not yet freed by their B, or by W if the backward is split) on a rank at once.
inline int peak_activations(const Schedule& schedule, RankId rank) {
  int alive = 0;
  int peak = 0;
  for (const Action& action : schedule.ranks[rank.index()]) {
    for (const Compute* c : {&action.first, action.second ? &*action.second : nullptr}) {
      if (c == nullptr) continue;
      if (c->op == Op::forward) peak = std::max(peak, ++alive);
      if (c->op == Op::backward || c->op == Op::backward_weight) --alive;
    }
  }
  return peak;
}

}  // namespace plumb::test

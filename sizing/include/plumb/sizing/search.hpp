// SPDX-License-Identifier: Apache-2.0
//
// search.hpp: the best layouts of a request, and those that no other beats in time, memory and network at once.
//
// Candidates are taken in order of the least time that they could take. One is dropped only if, by its lower bounds,
// it can be neither among the best, nor the best of its schedule or routing policy, nor on the Pareto front; the others
// are simulated in waves on all threads, those that differ in sharding only once. So the result, to the last bit, is
// that of simulating all, on any number of threads, also when part of it was recorded by a run before. Not a heuristic,
// not a model of the network's contention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plumb/sizing/evaluate.hpp"

namespace plumb {

// On the front, memory and network are told apart by steps of that share.
inline constexpr double front_step = 0.05;

struct Evaluated {
  Candidate candidate;
  Outcome outcome;
  std::size_t order = 0;  // in which candidates are enumerated: decides between equals
};

struct SearchProgress {
  std::size_t evaluated = 0;  // as num_evaluated below
  std::size_t decided = 0;    // of those that fit by the first look: simulated, dropped or found too large
  std::size_t left = 0;       // not yet
  double best_step_us = 0;    // 0: none yet
};

struct SearchOptions {
  std::size_t num_best = 10;
  int num_threads = 0;  // 0: as many as the machine has cores
  bool prune = true;    // false: everything is simulated, for tests
  // What a run before found out, by to_string(candidate); nothing: unknown.
  std::function<std::optional<Outcome>(const Candidate&)> recall{};
  std::function<void(std::span<const Evaluated>)> record{};  // new ones, once each, after every wave
  std::function<void(const SearchProgress&)> progress{};     // after every wave and look
  std::function<bool()> stop{};                              // asked between simulations, on any thread
};

struct SearchResult {
  // Ascending by time. Layouts that differ in routing, group or cuts only count as one, of which the best stands here.
  std::vector<Evaluated> best;
  std::vector<Evaluated> pareto;        // ascending by time
  std::vector<Evaluated> by_schedule;   // the best of each, in the order of all_schedule_kinds()
  std::vector<Evaluated> by_policy;     // likewise
  std::size_t num_candidates = 0;       // legal ones
  std::size_t num_too_large = 0;        // of these, not in memory by their lower bounds
  std::size_t num_evaluated = 0;        // simulated now or by a run before
  std::size_t num_dropped = 0;          // by bounds
  bool is_complete = true;              // false: stopped
  std::optional<Candidate> smallest{};  // nothing fits: the one with the least lower bound of memory
};

// Throws InputError as candidate_families() does, and what simulations throw.
SearchResult search(const SizeRequest& request, const SearchOptions& options = {});

// Those with the least lower bounds of memory, ascending, whether or not they fit. Throws as candidate_families().
std::vector<Candidate> smallest_candidates(const SizeRequest& request, std::size_t count);

// Sixteen hexadecimal digits that change with anything the outcome depends on.
std::string digest_of(const SizeRequest& request);

}  // namespace plumb

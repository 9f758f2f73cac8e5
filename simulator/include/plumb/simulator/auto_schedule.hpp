// SPDX-License-Identifier: Apache-2.0
//
// auto_schedule.hpp: a schedule made for given costs and a memory limit, instead of for a name.
//
// It starts from every named schedule that fits the limit, searches orders with a list scheduler of its own, and
// simulates the best of both: what it returns is never slower, in simulate(), than the best named one that fits, nor
// than what it returns under a tighter limit (one limit for all ranks, steps of up to budget / 1000 computations).
// Uneven chunks, heads and slow links are where it gains. The limit counts chunk activations only; what the cache and
// the weights hold comes on top. No randomness, no clock: the same request gives the same schedule. Not thread-safe to
// share a request's callback; otherwise pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plumb/cache/lower.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/simulate.hpp"

namespace plumb {

// What one microbatch holds on a rank for one chunk, in whatever unit the limit has.
struct ChunkMemory {
  std::int64_t held = 1;  // from the start of F to the end of B or I
  std::int64_t kept = 1;  // from the end of I to the end of W; at most `held`
};

enum class MemoryUnit : std::uint8_t { chunks, bytes };  // only for messages

struct AutoProgress {
  std::string_view phase;  // "named", "search", "simulate"
  std::int64_t done = 0;
  std::int64_t total = 0;
};

struct AutoRequest {
  Layout layout;                        // its placement is the one to use unless `placements` names others
  std::vector<Placement> placements{};  // all that may be used
  DepthMap depth;
  Policy policy = Policy::cached;
  CostModel costs;
  int post_ahead = 1;
  SimOptions simulation{};
  std::vector<ChunkMemory> memory{ChunkMemory{}};  // one for all chunks, or one for each
  std::vector<std::int64_t> memory_limit{};        // per rank; one for all; none: no limit
  MemoryUnit unit = MemoryUnit::chunks;
  // Computations placed while searching, all tries together: about 10 million a second.
  std::int64_t budget = 20'000'000;
  std::function<void(const AutoProgress&)> progress{};
};

struct AutoCandidate {
  std::string name;  // "zb-v", "interleaved, group 16", "auto"
  Placement placement = Placement::loop;
  std::vector<std::int64_t> peak;  // memory per rank
  bool fits = false;
  std::string from;               // of a searched one: the named order it was searched from, or "rules of its own"
  std::optional<SimTime> step{};  // simulated; absent if it does not fit or cannot be better than one already simulated
};

struct AutoSchedule {
  Schedule schedule;  // named "auto", or after the named one that nothing beat
  SimTime step{0};
  SimTime lower_bound{0};                 // no order can be faster, whatever the memory
  std::vector<std::int64_t> peak;         // memory per rank
  std::vector<AutoCandidate> candidates;  // the named ones in their order, then what the search found
  std::size_t chosen = 0;                 // index into them
};

// A rank cannot hold even one microbatch. what() is one line: "rank 3 needs at least 41 GiB ..".
class MemoryTooSmall : public InputError {
 public:
  MemoryTooSmall(RankId rank, std::int64_t needed, std::int64_t limit, MemoryUnit unit);
  RankId rank() const { return rank_; }
  std::int64_t needed() const { return needed_; }  // exact: with this much there is a schedule
  std::int64_t limit() const { return limit_; }

 private:
  RankId rank_;
  std::int64_t needed_;
  std::int64_t limit_;
};

// The most that is held at once on each rank. It follows from the order alone.
std::vector<std::int64_t> peak_memory(const Schedule& schedule, std::span<const ChunkMemory> memory);

// Linear in the number of computations for a given number of tries; the tries fall as it grows, so that the budget
// bounds the time. Throws MemoryTooSmall, naming the rank that lacks most; InputError when sizes do not fit together.
AutoSchedule auto_schedule(const AutoRequest& request);

}  // namespace plumb

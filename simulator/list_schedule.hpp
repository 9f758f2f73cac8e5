// SPDX-License-Identifier: Apache-2.0
//
// list_schedule.hpp (private): from one priority per computation to an order and its time, under a memory limit.
//
// The list scheduler runs the step once. Whenever a rank is free it takes the ready computation with the smallest key,
// unless one with a smaller key is known to arrive soon (`patience`); a gap is filled with what fits into it. Within a
// chunk microbatches go in ascending order. Messages cost what the next chunk has to wait for at least: latency and the
// units that leave with the computation; who shares a link with whom is left to simulate.hpp. Linear in the number of
// computations times V + P.
//
// Greedy keys cannot deadlock: a forward is admitted only if all microbatches in flight on its rank could still finish
// one after the other, in ascending order. The order is the same for all ranks, so the oldest one can always go on.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "plumb/schedule/layout.hpp"
#include "plumb/schedule/schedule.hpp"

namespace plumb {

inline constexpr std::int64_t no_memory_limit = std::numeric_limits<std::int64_t>::max();

struct ListProblem {
  Layout layout;
  bool split = true;                    // I and W; else B, whose time stands in `input`
  std::vector<std::int64_t> forward{};  // [chunk], picoseconds
  std::vector<std::int64_t> input{};
  std::vector<std::int64_t> weight{};
  std::vector<std::int64_t> hop_forward{};   // [chunk] from the end of its F to the next chunk's F; 0 on one rank
  std::vector<std::int64_t> hop_backward{};  // [chunk] from the end of its I to the previous chunk's I
  bool linked = true;  // every chunk waits for the one before; not so around empty chunks that have nothing to pass on
  std::vector<std::int64_t> held{};   // [chunk] memory from the start of F to the end of B or I
  std::vector<std::int64_t> kept{};   // [chunk] memory from the end of I to the end of W
  std::vector<std::int64_t> limit{};  // [rank] REQUIRES room for one microbatch: the sum of `held` over its chunks

  std::size_t chunks() const { return forward.size(); }
  std::size_t microbatches() const { return static_cast<std::size_t>(layout.microbatches()); }
  std::size_t at(std::size_t chunk, std::size_t microbatch) const { return chunk * microbatches() + microbatch; }
  std::int64_t num_computes() const { return static_cast<std::int64_t>((split ? 3 : 2) * chunks() * microbatches()); }
};

enum class ListOp : std::uint8_t { forward, input, weight };

struct ListKeys {
  std::vector<std::int64_t> of[3];  // [ListOp][chunk * M + microbatch], smaller goes first
  int patience = 0;  // eighths of a computation's own time for which it steps back for one with a smaller key
};

// Keys with this patience are an order: each rank waits for its smallest key, whatever else it could do.
inline constexpr int strict_order = 1 << 20;

struct ListCompute {
  ListOp op;
  std::int32_t chunk;
  std::int32_t microbatch;
  std::int64_t start;
};

struct ListResult {
  std::int64_t makespan = 0;     // no_memory_limit's value, the largest, if a strict order cannot run
  std::int64_t sum_of_ends = 0;  // divided by P: over the ranks: the smaller of two equal steps has more slack
  std::vector<std::vector<ListCompute>> ranks;  // only if asked for
};

inline bool better(const ListResult& a, const ListResult& b) {
  return a.makespan != b.makespan ? a.makespan < b.makespan : a.sum_of_ends < b.sum_of_ends;
}

// Keeps its buffers between runs.
class ListScheduler {
 public:
  explicit ListScheduler(const ListProblem& problem);
  ListResult run(const ListKeys& keys, bool with_order);

 private:
  struct Candidate {
    ListOp op = ListOp::forward;
    std::size_t chunk = 0;
    std::int64_t key = std::numeric_limits<std::int64_t>::max();
    std::int64_t ready = 0;
    bool exists() const { return key != std::numeric_limits<std::int64_t>::max(); }
  };
  struct Rank {
    std::vector<std::size_t> chunks;
    std::int64_t free_at = 0;
    std::int64_t wake = 0;
    std::int64_t used = 0;
    std::int64_t one_microbatch = 0;  // memory of all its chunks together
    std::size_t oldest = 0;           // first microbatch that has not left
    std::size_t started = 0;          // one past the last that has entered
    std::vector<std::int64_t> held;   // [microbatch]
    std::vector<std::int64_t> needed;
  };

  void reset();
  bool admits(const Rank& rank, std::size_t chunk, std::size_t microbatch) const;
  bool fits(const Rank& rank, std::size_t chunk) const;
  bool act(std::size_t rank_index, const ListKeys& keys);
  bool act_in_order(std::size_t rank_index, const ListKeys& keys);
  void consider(const Rank& rank, const ListKeys& keys, std::int64_t now);
  void start(std::size_t rank_index, const Candidate& candidate, std::int64_t now);
  std::int64_t duration(const Candidate& candidate) const;
  void arrive(ListOp op, std::size_t chunk, std::size_t microbatch, std::int64_t at);

  const ListProblem& problem_;
  std::size_t microbatches_;
  std::vector<std::size_t> rank_of_;
  std::vector<Rank> ranks_;
  std::vector<std::int64_t> ready_[3];  // [ListOp][chunk * M + microbatch]; unknown until the producer has started
  std::vector<std::size_t> next_[3];    // [ListOp][chunk] next microbatch
  std::vector<Candidate> candidates_;
  ListResult result_;
  bool with_order_ = false;
};

// The same keys for every microbatch, `period` later each: what a steady pipeline does. Their number does not depend on
// M, so that they can be searched on a short step and used for a long one.
struct SteadyKeys {
  std::vector<std::int64_t> of[3];  // [ListOp][chunk]
  std::int64_t period = 0;
  int patience = 0;
};

ListKeys spread(const SteadyKeys& keys, const ListProblem& problem);

Schedule as_schedule(const ListResult& result, const ListProblem& problem, std::string name);

}  // namespace plumb

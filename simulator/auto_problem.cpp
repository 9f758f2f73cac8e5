// SPDX-License-Identifier: Apache-2.0
#include "auto_problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "plumb/cache/routing.hpp"
#include "plumb/schedule/invariant.hpp"

namespace plumb {
namespace {

const ChunkMemory& memory_of(std::span<const ChunkMemory> memory, ChunkId chunk) {
  return memory.size() == 1 ? memory.front() : memory[chunk.index()];
}

constexpr std::int64_t unknown = -1;

std::size_t kind_of(Op op) {
  if (op == Op::forward) return 0;
  return op == Op::backward_weight ? 2 : 1;
}

}  // namespace

std::int64_t limit_of(const AutoRequest& request, RankId rank) {
  if (request.memory_limit.empty()) return no_memory_limit;
  return request.memory_limit.size() == 1 ? request.memory_limit.front() : request.memory_limit[rank.index()];
}

void require_consistent(const AutoRequest& request) {
  const auto chunks = static_cast<std::size_t>(request.layout.num_chunks());
  const auto ranks = static_cast<std::size_t>(request.layout.pp());
  if (request.memory.size() != 1 && request.memory.size() != chunks) {
    throw InputError(fmt::format("auto: memory is given for {} chunks, the layout has {}: give one for all or one each",
                                 request.memory.size(), chunks));
  }
  constexpr std::int64_t most = std::int64_t{1} << 50;
  for (const ChunkMemory& chunk : request.memory) {
    if (chunk.held < 0 || chunk.held > most || chunk.kept < 0 || chunk.kept > chunk.held) {
      throw InputError(fmt::format("auto: a chunk holds {} and keeps {} for W: legal are 0 <= kept <= held <= 2^50",
                                   chunk.held, chunk.kept));
    }
  }
  if (request.memory_limit.size() > 1 && request.memory_limit.size() != ranks) {
    throw InputError(
        fmt::format("auto: memory limits are given for {} ranks, the layout has {}: give one for all or "
                    "one each",
                    request.memory_limit.size(), ranks));
  }
  for (const std::int64_t limit : request.memory_limit) {
    if (limit < 0) throw InputError(fmt::format("auto: the memory limit is {}, it must be at least 0", limit));
  }
  if (request.budget < 0) throw InputError(fmt::format("auto: the budget is {}, legal is 0 or more", request.budget));
  if (request.depth.num_chunks() != request.layout.num_chunks()) {
    throw InputError(fmt::format("auto: the depth map has {} chunks, the layout {}", request.depth.num_chunks(),
                                 request.layout.num_chunks()));
  }
  request.costs.require_fits(request.layout.num_chunks(), request.layout.pp());
}

Shortage worst_shortage(const AutoRequest& request, const Layout& layout) {
  Shortage worst{RankId(0), 0, no_memory_limit};
  for (RankId rank(0); rank.value < layout.pp(); rank = rank.next()) {
    std::int64_t needed = 0;
    for (const ChunkId chunk : layout.chunks_on(rank))
      needed += memory_of(request.memory, chunk).held;
    const Shortage here{rank, needed, limit_of(request, rank)};
    if (here.missing() > worst.missing()) worst = here;
  }
  return worst;
}

ListProblem make_problem(const AutoRequest& request, const Layout& layout, bool split) {
  ListProblem problem{.layout = layout, .split = split};
  const Routing routing = make_routing(layout, request.depth, request.policy);
  problem.hop_forward.assign(static_cast<std::size_t>(layout.num_chunks()), 0);
  problem.hop_backward = problem.hop_forward;
  for (ChunkId chunk(0); chunk.value < layout.num_chunks(); chunk = chunk.next()) {
    problem.forward.push_back(request.costs.time_of(Op::forward, chunk).count());
    problem.input.push_back(request.costs.time_of(split ? Op::backward_input : Op::backward, chunk).count());
    problem.weight.push_back(split ? request.costs.time_of(Op::backward_weight, chunk).count() : 0);
    const ChunkMemory& memory = memory_of(request.memory, chunk);
    problem.held.push_back(memory.held);
    problem.kept.push_back(memory.kept);
    if (chunk.next().value == layout.num_chunks()) break;
    // What leaves with the computation and the next chunk cannot do without.
    bool waits = layout.rank_of(chunk) == layout.rank_of(chunk.next());
    for (const TransferId id : routing.after_chunk[chunk.index()]) {
      const Transfer& transfer = routing.transfers[id.index()];
      if (transfer.to_chunk != chunk.next() || transfer.after_arrival.value >= 0 || transfer.units() == 0) continue;
      waits = waits || transfer.partial || request.depth.reads_sources(chunk.next());
      const auto extend = [&](std::int64_t& hop, const Link& link, SimTime unit) {
        hop = std::max(hop, (link.latency + unit * transfer.units()).count());
      };
      const Link& there = request.costs.link(transfer.from, transfer.to);
      const Link& back = request.costs.link(transfer.to, transfer.from);
      extend(problem.hop_forward[chunk.index()], there, there.value_unit);
      extend(problem.hop_backward[chunk.index() + 1], back, back.gradient_unit);
    }
    problem.linked = problem.linked && waits;
  }
  for (RankId rank(0); rank.value < layout.pp(); rank = rank.next()) {
    problem.limit.push_back(limit_of(request, rank));
  }
  return problem;
}

ListProblem shortened(const ListProblem& problem, int microbatches) {
  ListProblem shorter = problem;
  shorter.layout = problem.layout.with_microbatches(microbatches);
  return shorter;
}

int spare_bits(const ListProblem& problem) {
  double work = 1;
  for (std::size_t chunk = 0; chunk < problem.chunks(); ++chunk) {
    work += static_cast<double>(problem.forward[chunk]) + static_cast<double>(problem.input[chunk]) +
            static_cast<double>(problem.weight[chunk]) + static_cast<double>(problem.hop_forward[chunk]) +
            static_cast<double>(problem.hop_backward[chunk]);
  }
  constexpr int enough = 50;  // keys reach 2^8 times the work of the step
  return std::max(0, std::ilogb(work * static_cast<double>(problem.microbatches() + 4)) - enough);
}

ListProblem shortened_times(ListProblem problem, int bits) {
  for (std::vector<std::int64_t>* times :
       {&problem.forward, &problem.input, &problem.weight, &problem.hop_forward, &problem.hop_backward}) {
    for (std::int64_t& time : *times)
      time >>= bits;
  }
  return problem;
}

std::int64_t lower_bound(const AutoRequest& request, ListProblem problem) {
  for (std::size_t chunk = 0; chunk < problem.chunks(); ++chunk) {
    const std::int64_t whole = request.costs.time_of(Op::backward, ChunkId(chunk)).count();
    problem.input[chunk] = std::min(problem.input[chunk], whole);
    problem.weight[chunk] = std::min(problem.weight[chunk], whole - problem.input[chunk]);
  }
  std::vector<std::int64_t> work(problem.limit.size(), 0);
  std::vector<std::int64_t> first(problem.limit.size(), unknown);
  const auto microbatches = static_cast<std::int64_t>(problem.microbatches());
  std::int64_t path = 0;
  for (std::size_t chunk = 0; chunk < problem.chunks(); ++chunk) {
    const std::size_t rank = problem.layout.rank_of(ChunkId(chunk)).index();
    if (first[rank] == unknown) first[rank] = problem.linked ? path : 0;
    work[rank] += (problem.forward[chunk] + problem.input[chunk] + problem.weight[chunk]) * microbatches;
    path += problem.forward[chunk] + problem.hop_forward[chunk];
  }
  for (std::size_t chunk = 0; chunk < problem.chunks(); ++chunk) {
    path += problem.input[chunk] + problem.hop_backward[chunk];
  }
  path += problem.weight.front();
  std::int64_t bound = problem.linked ? path : 0;
  for (std::size_t rank = 0; rank < work.size(); ++rank) {
    bound = std::max(bound, first[rank] + work[rank]);
  }
  return bound;
}

StrictTimes strict_times(const Schedule& schedule, const AutoRequest& request, const ListProblem& problem) {
  StrictTimes times;
  std::array<std::vector<std::int64_t>, 3> end;
  for (std::size_t kind = 0; kind < 3; ++kind) {
    times.start[kind].assign(problem.chunks() * problem.microbatches(), 0);
    end[kind].assign(problem.chunks() * problem.microbatches(), unknown);
  }
  std::vector<std::vector<Compute>> rows;
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::vector<Compute>& row = rows.emplace_back();
    for (const Action& action : actions) {
      row.push_back(action.first);
      if (action.second) row.push_back(*action.second);
    }
  }
  std::vector<std::size_t> next(rows.size(), 0);
  std::vector<std::int64_t> free_at(rows.size(), 0);
  const auto ready = [&](const Compute& compute) -> std::int64_t {
    const std::size_t chunk = compute.chunk.index();
    const std::size_t m = compute.microbatch.index();
    const std::size_t here = problem.at(chunk, m);
    const auto after = [](std::int64_t ended, std::int64_t hop) { return ended == unknown ? unknown : ended + hop; };
    if (compute.op == Op::backward_weight) return end[1][here];
    if (compute.op == Op::forward) {
      return chunk == 0 ? 0 : after(end[0][problem.at(chunk - 1, m)], problem.hop_forward[chunk - 1]);
    }
    if (chunk + 1 == problem.chunks()) return end[0][here];
    return after(end[1][problem.at(chunk + 1, m)], problem.hop_backward[chunk + 1]);
  };
  // Each pass lets every rank run as far as it can; a rank that gets on wakes its neighbours.
  std::vector<std::size_t> awake;
  for (std::size_t rank = rows.size(); rank-- > 0;)
    awake.push_back(rank);
  std::vector<bool> is_awake(rows.size(), true);
  const auto wake = [&](std::size_t rank) {
    if (is_awake[rank]) return;
    is_awake[rank] = true;
    awake.push_back(rank);
  };
  while (!awake.empty()) {
    const std::size_t rank = awake.back();
    awake.pop_back();
    is_awake[rank] = false;
    while (next[rank] < rows[rank].size()) {
      const Compute& compute = rows[rank][next[rank]];
      const std::int64_t at = ready(compute);
      if (at == unknown) break;
      const std::size_t key = problem.at(compute.chunk.index(), compute.microbatch.index());
      const std::size_t kind = kind_of(compute.op);
      const std::int64_t start = std::max(at, free_at[rank]);
      free_at[rank] = start + request.costs.time_of(compute).count();
      times.start[kind][key] = start;
      end[kind][key] = free_at[rank];
      ++next[rank];
      if (compute.op == Op::forward && compute.chunk.index() + 1 < problem.chunks()) {
        wake(problem.layout.rank_of(compute.chunk.next()).index());
      } else if (kind == 1 && compute.chunk.value > 0) {
        wake(problem.layout.rank_of(compute.chunk.previous()).index());
      }
    }
  }
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    require(next[rank] == rows[rank].size(), [&] {
      return fmt::format("{} cannot run: rank {} is stuck at {}", schedule.name, rank,
                         to_string(rows[rank][next[rank]]));
    });
    times.makespan = std::max(times.makespan, free_at[rank]);
  }
  return times;
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

constexpr std::int64_t max_unit_bytes = std::int64_t{1} << 50;

SimTime rounded(double picoseconds, std::string_view what) { return from_us(picoseconds * 1e-6, what); }

void require_duration(SimTime time, std::string_view what) {
  if (time < SimTime(0) || time > max_duration) {
    throw InputError(fmt::format("{} is {} us: it must be 0..{:.0f}", what, to_us(time), to_us(max_duration)));
  }
}

// The planner wants ratios only: small integers, so that no sum of them overflows. Zero keeps its meaning.
void shorten(PlanCosts& costs) {
  constexpr std::int64_t enough = std::int64_t{1} << 40;
  std::vector<std::int64_t*> fields{&costs.forward,    &costs.backward_input, &costs.backward_weight,
                                    &costs.value_unit, &costs.gradient_unit,  &costs.latency};
  for (PlanChunkCosts& chunk : costs.chunks) {
    fields.insert(fields.end(), {&chunk.forward, &chunk.backward_input, &chunk.backward_weight});
  }
  std::int64_t common = 0;
  std::int64_t largest = 0;
  for (const std::int64_t* field : fields) {
    common = std::gcd(common, *field);
    largest = std::max(largest, *field);
  }
  if (largest == 0) return;
  const std::int64_t divisor = common * (largest / common / enough + 1);
  for (std::int64_t* field : fields) {
    if (*field > 0) *field = std::max<std::int64_t>(1, *field / divisor);
  }
}

// B is I + W there; a B given otherwise is shared out between them in proportion.
PlanChunkCosts as_planned(const ActionTimes& times) {
  PlanChunkCosts chunk{times.forward.count(), times.backward_input.count(), times.backward_weight.count()};
  const std::int64_t halves = chunk.backward_input + chunk.backward_weight;
  const std::int64_t whole = times.backward.count();
  if (halves == 0) {
    chunk.backward_input = whole;
  } else if (halves != whole) {
    const double share = static_cast<double>(chunk.backward_input) / static_cast<double>(halves);
    chunk.backward_input = std::llround(static_cast<double>(whole) * share);
    chunk.backward_weight = whole - chunk.backward_input;
  }
  return chunk;
}

// Sum over all models' times of one operation, divided by their number.
std::int64_t mean(const std::vector<ActionTimes>& times, SimTime ActionTimes::*op) {
  std::int64_t quotients = 0;
  std::int64_t remainders = 0;  // summed apart: the sum of the times themselves could overflow
  const auto count = static_cast<std::int64_t>(times.size());
  for (const ActionTimes& chunk : times) {
    quotients += (chunk.*op).count() / count;
    remainders += (chunk.*op).count() % count;
  }
  return quotients + remainders / count;
}

}  // namespace

ActionTimes action_times(SimTime forward, SimTime backward_input, SimTime backward_weight) {
  return {forward, backward_input + backward_weight, backward_input, backward_weight};
}

GradientWire parse_gradient_wire(std::string_view text) {
  if (text == "storage") return GradientWire::storage;
  if (text == "fp32") return GradientWire::fp32;
  throw InputError(fmt::format("unknown gradient type on the wire '{}': it is storage or fp32", text));
}

UnitBytes unit_bytes(std::int64_t tokens, std::int64_t hidden, int storage_bytes, GradientWire wire) {
  if (storage_bytes != 2 && storage_bytes != 4 && storage_bytes != 8) {
    throw InputError(fmt::format("a stored element has {} bytes: it must be 2, 4 or 8", storage_bytes));
  }
  const std::int64_t accumulated_bytes = std::max(4, storage_bytes);
  if (tokens < 1) throw InputError(fmt::format("tokens is {}: it must be at least 1", tokens));
  if (hidden < 1) throw InputError(fmt::format("hidden is {}: it must be at least 1", hidden));
  if (tokens > max_unit_bytes / accumulated_bytes / hidden) {
    throw InputError(fmt::format("{} tokens of width {} are too large a unit: at most {} tokens are possible here",
                                 tokens, hidden, max_unit_bytes / accumulated_bytes / hidden));
  }
  const std::int64_t elements = tokens * hidden;
  return {elements * storage_bytes, elements * (wire == GradientWire::storage ? storage_bytes : accumulated_bytes),
          elements * accumulated_bytes};
}

Link link_from_rate(SimTime latency, double gigabytes_per_s, const UnitBytes& bytes) {
  if (!(gigabytes_per_s > 0)) {
    throw InputError(fmt::format("a link of {} GB/s moves nothing: it must be more than 0, or inf", gigabytes_per_s));
  }
  if (std::isinf(gigabytes_per_s)) return {latency, SimTime(0), SimTime(0)};
  const auto time = [&](std::int64_t unit) {
    return std::max(SimTime(1), rounded(static_cast<double>(unit) * 1000 / gigabytes_per_s, "the time of one unit"));
  };
  return {latency, time(bytes.value), time(bytes.gradient_wire)};
}

Link link_from_unit_time(SimTime latency, SimTime value_unit, const UnitBytes& bytes) {
  const double ratio = static_cast<double>(bytes.gradient_wire) / static_cast<double>(bytes.value);
  return {latency, value_unit, rounded(static_cast<double>(value_unit.count()) * ratio, "the time of one gradient")};
}

CostModel::CostModel(const ActionTimes& times, const Link& link, const UnitBytes& bytes)
    : CostModel(std::vector<ActionTimes>{times}, link, bytes) {}

CostModel::CostModel(std::vector<ActionTimes> times, const Link& link, const UnitBytes& bytes)
    : CostModel(std::move(times), LinkTable{.num_ranks = 0, .links = {link}, .of_pair = {}}, bytes) {}

CostModel::CostModel(std::vector<ActionTimes> times, LinkTable links, const UnitBytes& bytes)
    : times_(std::move(times)), links_(std::move(links)), bytes_(bytes) {
  if (times_.empty()) throw InputError("a cost model needs the times of at least one chunk");
  for (const ActionTimes& chunk : times_) {
    require_duration(chunk.forward, "the time of F");
    require_duration(chunk.backward, "the time of B");
    require_duration(chunk.backward_input, "the time of I");
    require_duration(chunk.backward_weight, "the time of W");
  }
  for (const Link& link : links_.links) {
    require_duration(link.latency, "the latency");
    require_duration(link.value_unit, "the time of a value on a link");
    require_duration(link.gradient_unit, "the time of a gradient on a link");
  }
  const auto ranks = static_cast<std::size_t>(std::max(0, links_.num_ranks));
  if (links_.links.empty() || links_.of_pair.size() != ranks * ranks ||
      std::any_of(links_.of_pair.begin(), links_.of_pair.end(),
                  [&](std::uint8_t index) { return index >= links_.links.size(); })) {
    throw InputError(
        fmt::format("a cost model of {} ranks needs a link for each of their {} pairs", ranks, ranks * ranks));
  }
}

SimTime CostModel::time_of(Op op, ChunkId chunk) const {
  const ActionTimes& times = times_.size() == 1 ? times_.front() : times_[chunk.index()];
  switch (op) {
    case Op::forward:
      return times.forward;
    case Op::backward:
      return times.backward;
    case Op::backward_input:
      return times.backward_input;
    case Op::backward_weight:
      break;
  }
  return times.backward_weight;
}

const Link& CostModel::link(RankId from, RankId to) const {
  if (links_.of_pair.empty()) return links_.links.front();
  return links_.links[links_.of_pair[from.index() * static_cast<std::size_t>(links_.num_ranks) + to.index()]];
}

void CostModel::require_fits(int num_chunks, int num_ranks) const {
  if (!links_.of_pair.empty() && links_.num_ranks < num_ranks) {
    throw InputError(
        fmt::format("the cost model has links among {} ranks, the layout has {}", links_.num_ranks, num_ranks));
  }
  if (times_.size() != 1 && times_.size() != static_cast<std::size_t>(num_chunks)) {
    throw InputError(
        fmt::format("the cost model has times for {} chunks, the layout has {}: give one for all or one for each",
                    times_.size(), num_chunks));
  }
}

PlanCosts CostModel::plan_costs() const {
  ActionTimes average;
  for (SimTime ActionTimes::*op :
       {&ActionTimes::forward, &ActionTimes::backward, &ActionTimes::backward_input, &ActionTimes::backward_weight}) {
    average.*op = SimTime(mean(times_, op));
  }
  const PlanChunkCosts all = as_planned(average);
  PlanCosts costs;
  costs.forward = all.forward;
  costs.backward_input = all.backward_input;
  costs.backward_weight = all.backward_weight;
  if (times_.size() > 1) {
    for (const ActionTimes& chunk : times_)
      costs.chunks.push_back(as_planned(chunk));
  }
  Link slowest = links_.links.front();
  for (int rank = 0; rank + 1 < links_.num_ranks; ++rank) {
    const Link& next = link(RankId(rank), RankId(rank + 1));
    if (rank == 0 || next.value_unit + next.latency > slowest.value_unit + slowest.latency) slowest = next;
  }
  costs.value_unit = slowest.value_unit.count();
  costs.gradient_unit = slowest.gradient_unit.count();
  costs.latency = slowest.latency.count();
  shorten(costs);
  return costs;
}

}  // namespace plumb

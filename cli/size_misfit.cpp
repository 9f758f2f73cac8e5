// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "output.hpp"
#include "plumb/schedule/error.hpp"
#include "size_report.hpp"

namespace plumb::cli {
namespace {

constexpr std::size_t looked_at = 4;  // bounds leave out blocks: the least need is among the first
constexpr int most_times = 64;

std::optional<Misfit::Other> fitting(const SizeRequest& request) {
  for (const Candidate& candidate : smallest_candidates(request, looked_at)) {
    const Outcome outcome = evaluate(request, candidate);
    if (outcome.fits) return Misfit::Other{request.gpus, request.global_batch, candidate, outcome.peak_bytes};
  }
  return std::nullopt;
}

bool any_settled(const Settled& s) {
  return !(s.pp.empty() && s.vp.empty() && s.tp.empty() && s.ep.empty() && s.dp.empty() && s.microbatch.empty() &&
           s.schedules.empty() && s.policies.empty() && s.recomputes.empty() && s.shardings.empty());
}

// With some of the choices open again that the user settled: as few as possible.
std::optional<Misfit::Other> opened(const SizeRequest& request) {
  const auto open = [&](auto&& change) -> std::optional<Misfit::Other> {
    SizeRequest other = request;
    change(other.settled);
    try {
      return fitting(other);
    } catch (const InputError&) {
      return std::nullopt;
    }
  };
  if (auto found = open([](Settled& s) { s.shardings.clear(); })) return found;
  if (auto found = open([](Settled& s) { s.recomputes.clear(); })) return found;
  if (auto found = open([](Settled& s) { s.schedules.clear(), s.policies.clear(), s.vp.clear(); })) return found;
  if (auto found = open([](Settled& s) { s.ep.clear(); })) return found;
  return open([](Settled& s) { s = {}; });
}

std::optional<Misfit::Other> larger(SizeRequest request) {
  request.settled = {};
  const SizeRequest first = request;
  for (int times = 2; times <= most_times; times *= 2) {
    if (first.gpus > std::numeric_limits<int>::max() / times) break;
    request.gpus = first.gpus * times;
    request.global_batch = first.global_batch * times;
    try {
      if (auto found = fitting(request)) return found;
    } catch (const InputError&) {
      break;  // the cluster has no more
    }
  }
  return std::nullopt;
}

}  // namespace

Misfit misfit_of(const SizeRequest& request, const Candidate& smallest) {
  Misfit misfit{.smallest = smallest, .need = memory_need(request, smallest), .fits = std::nullopt};
  for (const Candidate& candidate : smallest_candidates(request, looked_at)) {
    const MemoryNeed need = memory_need(request, candidate);
    if (need.total() < misfit.need.total()) {
      misfit.smallest = candidate;
      misfit.need = need;
    }
  }
  if (any_settled(request.settled)) misfit.fits = opened(request);
  if (!misfit.fits) misfit.fits = larger(request);
  return misfit;
}

std::string misfit_text(const SizeRequest& request, const Misfit& misfit) {
  const MemoryNeed& need = misfit.need;
  const std::pair<std::string_view, double> classes[] = {
      {"weights", need.held.weights_bytes},     {"gradients", need.held.gradients_bytes},
      {"optimizer", need.held.optimizer_bytes}, {"workspace", need.held.workspace_bytes},
      {"activations", need.activation_bytes},   {"blocks and messages", need.block_bytes}};
  std::string parts;
  const auto* largest = std::begin(classes);
  for (const auto& one : classes) {
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", one.first, bytes_text(one.second));
    if (one.second > largest->second) largest = &one;
  }
  std::string text = fmt::format(
      "no layout of {} on {} devices fits in {}: the smallest, {}, needs {} on rank {}, {} too much, most of it {} "
      "({})",
      request.shape.name, request.gpus, bytes_text(request.memory_bytes), words_of(misfit.smallest),
      bytes_text(need.total()), need.rank, bytes_text(need.total() - request.memory_bytes), largest->first, parts);
  if (misfit.fits) {
    const Misfit::Other& other = *misfit.fits;
    text += fmt::format("; {}{} would fit, with {}",
                        other.gpus == request.gpus ? "" : fmt::format("{} devices with ", other.gpus),
                        words_of(other.candidate), bytes_text(other.peak_bytes));
  } else {
    text += fmt::format("; not even {} times as many devices would do", most_times);
  }
  return text;
}

}  // namespace plumb::cli

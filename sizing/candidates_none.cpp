// SPDX-License-Identifier: Apache-2.0
#include "candidates_none.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

bool has_any(SizeRequest request, int gpus, std::int64_t batch) {
  if (gpus < 1 || batch < 1) return false;
  request.gpus = gpus;
  request.global_batch = batch;
  return has_families(request);
}

// " --pp 8 --schedule zb-v", without the flag `but`.
std::string flags_text(const Settled& settled, std::string_view but = {}) {
  std::string text;
  const auto add = [&](std::string_view flag, const auto& values, auto&& name) {
    if (values.empty() || flag == but) return;
    std::vector<std::string> names;
    for (const auto& value : values)
      names.push_back(fmt::format("{}", name(value)));
    text += fmt::format(" --{} {}", flag, fmt::join(names, ","));
  };
  const auto number = [](int value) { return value; };
  const auto word = [](auto value) { return to_string(value); };
  add("pp", settled.pp, number);
  add("vp", settled.vp, number);
  add("tp", settled.tp, number);
  add("ep", settled.ep, number);
  add("dp", settled.dp, number);
  add("microbatch", settled.microbatch, number);
  add("schedule", settled.schedules, word);
  add("cache", settled.policies, word);
  return text;
}

std::string settled_text(const Settled& settled) {
  const std::string text = flags_text(settled);
  return text.empty() ? " of any kind" : text;
}

// The product of what is settled must divide the devices.
void require_divisible(const SizeRequest& request) {
  const Settled& settled = request.settled;
  std::int64_t product = 1;
  for (const auto* one : {&settled.pp, &settled.tp, &settled.dp}) {
    if (one->size() == 1 && product <= request.gpus) product *= one->front();
  }
  if (request.gpus % product == 0) return;
  const std::int64_t below = request.gpus / product * product;
  throw InputError(fmt::format(
      "--gpus {} is not divisible by{}, {} in all: the nearest {}", request.gpus, settled_text(settled), product,
      below > 0 ? fmt::format("are {} and {}", below, below + product) : fmt::format("is {}", product)));
}

// Degrees that the model itself does not allow, in the words of those who split it.
void require_degrees(const SizeRequest& request) {
  const Settled& settled = request.settled;
  const auto check = [&](const std::vector<int>& values, auto&& degrees) {
    if (values.size() != 1) return;
    require_divides(request.shape, {.tokens = values.front(), .sequence = 1, .degrees = degrees(values.front())});
  };
  check(settled.tp, [](int tp) { return Degrees{.tp = tp}; });
  check(settled.ep, [](int ep) { return Degrees{.ep = ep, .dp = ep}; });
}

int least(const std::vector<int>& values) {
  return values.empty() ? 1 : *std::min_element(values.begin(), values.end());
}

// More microbatches than a pipeline is laid out for.
void require_few_microbatches(const SizeRequest& request) {
  const Settled& settled = request.settled;
  const std::int64_t most = std::min(most_microbatches, most_computations / least(settled.pp) / least(settled.vp));
  std::int64_t legal = 0;
  const auto try_replicas = [&](std::int64_t dp) {
    for (std::int64_t microbatch = 1; microbatch <= max_microbatch_tokens; microbatch *= 2) {
      const std::int64_t batch = dp * microbatch * most;
      if (batch > legal && has_any(request, request.gpus, batch)) legal = batch;
    }
  };
  if (request.global_batch <= most) return;
  for (int dp = 1; dp <= request.gpus; ++dp) {
    if (request.gpus % dp == 0) try_replicas(dp);
  }
  if (legal == 0 || legal >= request.global_batch) return;
  std::string text = fmt::format(
      "--global-batch {} makes more microbatches{} than the {} that a pipeline is laid out for: the largest "
      "--global-batch "
      "is {}",
      request.global_batch, flags_text(settled), most, legal);
  SizeRequest other = request;
  other.settled.microbatch.clear();
  int larger = 0;
  for (const CandidateFamily& family : families_if_any(other)) {
    if (larger == 0 || family.first.microbatch < larger) larger = family.first.microbatch;
  }
  if (larger > 0) text += fmt::format(", or --microbatch {}", larger);
  throw InputError(text);
}

// Which other values of one flag would do.
template <class Value>
std::vector<Value> legal_values(SizeRequest request, std::vector<Value> Settled::*open,
                                const std::function<void(const CandidateFamily&, std::set<Value>&)>& collect) {
  (request.settled.*open).clear();
  std::set<Value> legal;
  for (const CandidateFamily& family : families_if_any(request))
    collect(family, legal);
  return {legal.begin(), legal.end()};
}

[[noreturn]] void throw_flag(const SizeRequest& request, std::string_view flag, const std::string& given,
                             std::string_view why, const std::string& legal) {
  const std::string others = flags_text(request.settled, flag);
  throw InputError(fmt::format("--{} {} has no layout of {} on {} devices{}{}: {}, {}", flag, given, request.shape.name,
                               request.gpus, others.empty() ? "" : " with", others, why, legal));
}

void require_number(const SizeRequest& request, std::string_view flag, std::vector<int> Settled::*open,
                    std::string_view why, int (*of)(const Candidate&)) {
  const std::vector<int>& given = request.settled.*open;
  if (given.empty()) return;
  const std::vector<int> legal = legal_values<int>(
      request, open, [&](const CandidateFamily& family, std::set<int>& to) { to.insert(of(family.first)); });
  if (legal.empty()) return;
  const int nearest = *std::min_element(legal.begin(), legal.end(), [&](int a, int b) {
    const auto far = [&](int value) { return std::abs(std::int64_t{value} - given.front()); };
    return far(a) < far(b);
  });
  throw_flag(request, flag, fmt::format("{}", fmt::join(given, ",")), why, fmt::format("the nearest is {}", nearest));
}

template <class Value>
void require_word(const SizeRequest& request, std::string_view flag, std::vector<Value> Settled::*open,
                  std::string_view why, const std::function<void(const CandidateFamily&, std::set<Value>&)>& collect) {
  const std::vector<Value>& given = request.settled.*open;
  if (given.empty()) return;
  const auto text = [](const std::vector<Value>& values) {
    std::string words;
    for (const Value& value : values)
      words += fmt::format("{}{}", words.empty() ? "" : ", ", to_string(value));
    return words;
  };
  const std::vector<Value> legal = legal_values<Value>(request, open, collect);
  if (!legal.empty()) throw_flag(request, flag, text(given), why, fmt::format("legal here: {}", text(legal)));
}

// One of the flags alone is to blame: the rest has layouts.
void require_each(const SizeRequest& request) {
  require_number(request, "vp", &Settled::vp,
                 "a rank has up to 8 chunks of a decoder layer or more, as many as its schedule takes",
                 [](const Candidate& c) { return c.vp; });
  require_number(request, "microbatch", &Settled::microbatch,
                 fmt::format("microbatches are powers of two that divide what a replica has of the {} sequences, of at "
                             "most {} tokens",
                             request.global_batch, max_microbatch_tokens),
                 [](const Candidate& c) { return c.microbatch; });
  require_word<ScheduleKind>(request, "schedule", &Settled::schedules, "it is not for so many chunks and microbatches",
                             [](const CandidateFamily& family, std::set<ScheduleKind>& to) {
                               for (const auto& [kind, group] : family.schedules)
                                 to.insert(kind);
                             });
  require_word<Policy>(request, "cache", &Settled::policies, "it is not for this residual stream",
                       [](const CandidateFamily& family, std::set<Policy>& to) {
                         to.insert(family.policies.begin(), family.policies.end());
                       });
  require_number(request, "ep", &Settled::ep, "it must divide the experts and the devices of a stage",
                 [](const Candidate& c) { return c.degrees.ep; });
  require_number(request, "tp", &Settled::tp, "tensor parallelism divides the heads and stays in the innermost tier",
                 [](const Candidate& c) { return c.degrees.tp; });
  require_number(request, "dp", &Settled::dp, "it must divide the devices and the batch",
                 [](const Candidate& c) { return c.degrees.dp; });
  require_number(request, "pp", &Settled::pp,
                 fmt::format("a rank has a decoder layer of {} or more", request.shape.layers.size()),
                 [](const Candidate& c) { return c.pp; });
}

// Whether replicas are settled and the batch goes into none of them.
bool is_undealt(const SizeRequest& request) {
  const std::vector<int>& dp = request.settled.dp;
  return !dp.empty() &&
         std::none_of(dp.begin(), dp.end(), [&](int replicas) { return request.global_batch % replicas == 0; });
}

void require_batch(const SizeRequest& request) {
  constexpr int furthest = 1 << 16;
  std::string text;
  for (std::int64_t distance = 1; distance <= furthest && text.empty(); ++distance) {
    const std::int64_t around = request.global_batch;
    if (has_any(request, request.gpus, around - distance)) text = fmt::to_string(around - distance);
    if (has_any(request, request.gpus, around + distance)) {
      text += fmt::format("{}{}", text.empty() ? "" : " or ", around + distance);
    }
  }
  if (text.empty()) return;
  throw InputError(
      fmt::format("--global-batch {} cannot be dealt out to {} devices with a layout{}: the nearest that can is {}",
                  request.global_batch, request.gpus, settled_text(request.settled), text));
}

void require_devices(const SizeRequest& request) {
  for (int distance = 1; distance < request.gpus + 64; ++distance) {
    for (const int other : {request.gpus - distance, request.gpus + distance}) {
      if (!has_any(request, other, std::int64_t{other} * 64)) continue;
      throw InputError(fmt::format("--gpus {} has no layout{} of {}: the nearest number that has is {}", request.gpus,
                                   settled_text(request.settled), request.shape.name, other));
    }
  }
}

}  // namespace

void throw_none(const SizeRequest& request) {
  require_divisible(request);
  require_degrees(request);
  require_few_microbatches(request);
  if (is_undealt(request)) require_batch(request);
  require_each(request);
  require_batch(request);
  require_devices(request);
  throw InputError(
      fmt::format("{} has no layout{}: leave one of them open", request.shape.name, settled_text(request.settled)));
}

}  // namespace plumb

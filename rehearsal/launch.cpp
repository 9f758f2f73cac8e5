// SPDX-License-Identifier: Apache-2.0
#include "plumb/rehearsal/launch.hpp"

#include <algorithm>
#include <charconv>

#include "plumb/comm/shared_memory.hpp"
#include "plumb/runtime/rank_threads.hpp"

namespace plumb {
namespace {

// Below ControlPlane::max_text_bytes.
constexpr std::size_t piece_bytes = std::size_t{4} << 20;

// Everybody's bytes, in rank order, in pieces that the control plane takes.
std::vector<std::string> gather(ControlPlane& control, const std::string& mine, std::chrono::nanoseconds limit) {
  std::vector<std::string> all(static_cast<std::size_t>(control.size()));
  std::size_t longest = 0;
  for (const std::string& text : control.exchange(std::to_string(mine.size()), limit)) {
    std::size_t size = 0;
    std::from_chars(text.data(), text.data() + text.size(), size);
    longest = std::max(longest, size);
  }
  for (std::size_t offset = 0; offset < longest; offset += piece_bytes) {
    const std::vector<std::string> pieces =
        control.exchange(offset < mine.size() ? mine.substr(offset, piece_bytes) : std::string(), limit);
    for (std::size_t r = 0; r < all.size(); ++r)
      all[r] += pieces[r];
  }
  return all;
}

// `options` outlives the place.
RankPlace place_of(RankId rank, Transport& transport, ControlPlane& control, const LaunchOptions& options) {
  RankPlace place{rank, transport, control};
  if (options.prepare) place.prepare = [rank, &options](Play& mine) { options.prepare(rank, mine); };
  if (rank.value == 0) place.on_step = options.on_step;
  return place;
}

std::span<RankSpot> spots_in(const SharedMemory& memory, std::size_t num_ranks) {
  return {reinterpret_cast<RankSpot*>(memory.data()), num_ranks};
}

}  // namespace

std::vector<RankOutcome> rehearse_on_threads(const RehearsalPlan& plan, const LaunchOptions& options) {
  const auto num_ranks = plan.program->layout.pp();
  std::optional<EmulatedLinks> links;
  if (options.emulate_links) links.emplace(num_ranks, most_messages(plan), link_shape(plan));
  std::vector<RankSpot> spots(static_cast<std::size_t>(num_ranks));
  std::vector<RankOutcome> outcomes(spots.size());
  run_ranks_as_threads(num_ranks, [&](RankId rank, Transport& transport, ControlPlane& control) {
    const auto front = options.in_front ? options.in_front(transport) : nullptr;
    RankPlace place = place_of(rank, front ? *front : transport, control, options);
    place.links = links ? &*links : nullptr;
    place.spots = spots;
    outcomes[rank.index()] = rehearse_on_rank(plan, place);
  });
  return outcomes;
}

std::vector<RankOutcome> rehearse_on_job(const RehearsalPlan& plan, RankId rank, Transport& transport,
                                         ControlPlane& control, const LaunchOptions& options) {
  const auto num_ranks = static_cast<std::size_t>(control.size());
  std::optional<EmulatedLinks> links;
  std::optional<SharedMemory> memory;
  if (options.emulate_links) {
    links.emplace(control, most_messages(plan), link_shape(plan), plan.wait_limit);
    memory.emplace(control, num_ranks * sizeof(RankSpot), plan.wait_limit);
  }
  const auto front = options.in_front ? options.in_front(transport) : nullptr;
  RankPlace place = place_of(rank, front ? *front : transport, control, options);
  place.links = links ? &*links : nullptr;
  if (memory) place.spots = spots_in(*memory, num_ranks);
  const RankOutcome mine = rehearse_on_rank(plan, place);
  std::vector<RankOutcome> outcomes;
  for (const std::string& bytes : gather(control, to_bytes(mine), plan.wait_limit))
    outcomes.push_back(outcome_from_bytes(bytes));
  return outcomes;
}

}  // namespace plumb

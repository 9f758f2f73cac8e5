// SPDX-License-Identifier: Apache-2.0
#include "network_stuck.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "names.hpp"
#include "plumb/simulator/simulate.hpp"

namespace plumb {
namespace {

class NetworkExplainer {
 public:
  explicit NetworkExplainer(const StuckNetwork& stuck) : stuck_(stuck) {}

  struct Place {
    RankId rank;
    Wait step;
    friend bool operator==(const Place&, const Place&) = default;
  };
  struct Cause {
    Place place;
    const char* how;  // goes before the name of what is waited for
  };

  bool finished(const Place& place) const { return stuck_.finished[id_of(place).index()]; }

  // Something unfinished that this unfinished step waits for.
  std::optional<Cause> cause(const Place& place) const {
    const RankProgram& rank = stuck_.program.ranks[place.rank.index()];
    const bool computes = place.step.on == Wait::On::compute;
    const Range waits = computes ? rank.compute[place.step.step].waits : rank.comm[place.step.step].waits;
    for (const Wait& wait : rank.waits_of(waits)) {
      if (!finished({place.rank, wait})) return Cause{{place.rank, wait}, ""};
    }
    if (computes) {
      if (place.step.step == 0) return std::nullopt;
      return Cause{{place.rank, {Wait::On::compute, static_cast<std::int32_t>(place.step.step) - 1}}, ""};
    }
    const CommStep& step = rank.comm[place.step.step];
    if (step.kind != CommKind::send && step.kind != CommKind::receive) return std::nullopt;
    const bool sending = step.kind == CommKind::send;
    if (const auto ahead = cause_on_stream(place, end_of(step.message, sending))) return ahead;
    if (sending && stuck_.eager[step.message.index()]) return std::nullopt;
    return Cause{place_of(end_of(step.message, !sending)), "its other end, "};
  }

  std::string name(const Place& place) const {
    const std::string text = step_name(stuck_.program, place.rank, place.step);
    if (place.step.on == Wait::On::compute) return text;
    const CommStep& step = stuck_.program.ranks[place.rank.index()].comm[place.step.step];
    if (step.kind != CommKind::send && step.kind != CommKind::receive) return text;
    return fmt::format("{} ({} units, {} bytes{})", text, step.segments.size(), stuck_.bytes[step.message.index()],
                       stuck_.eager[step.message.index()] ? ", eager" : "");
  }

 private:
  // The group ahead, or a member of its own that is not ready.
  std::optional<Cause> cause_on_stream(const Place& place, std::int32_t end) const {
    if (stuck_.groups.num_groups() == 0) return std::nullopt;
    const std::int32_t group = stuck_.groups.group_of(end);
    if (stuck_.groups.has_previous(group)) {
      for (const std::int32_t member : stuck_.groups.members(group - 1)) {
        if (!finished(place_of(member))) return Cause{place_of(member), "what is ahead on its stream, "};
      }
    }
    for (const std::int32_t member : stuck_.groups.members(group)) {
      const Place mate = place_of(member);
      if (mate == place) continue;
      const RankProgram& rank = stuck_.program.ranks[mate.rank.index()];
      for (const Wait& wait : rank.waits_of(rank.comm[mate.step.step].waits)) {
        if (!finished({mate.rank, wait})) return Cause{mate, "one in its batch, "};
      }
    }
    return std::nullopt;
  }

  StepId id_of(const Place& place) const {
    const auto index = static_cast<std::int32_t>(place.step.step);
    return place.step.on == Wait::On::compute ? stuck_.graph.compute(place.rank, index)
                                              : stuck_.graph.comm(place.rank, index);
  }
  Place place_of(std::int32_t end) const {
    const MessageId message(end / 2);
    const bool sending = end % 2 == 0;
    const RankId rank = sending ? stuck_.program.sender(message) : stuck_.program.receiver(message);
    const MessageEnds& ends = stuck_.graph.ends(message);
    return {rank, stuck_.graph.local(rank, sending ? ends.send : ends.receive)};
  }

  const StuckNetwork& stuck_;
};

std::optional<NetworkExplainer::Place> first_unfinished(const StuckNetwork& stuck, const NetworkExplainer& explainer) {
  for (std::size_t r = 0; r < stuck.program.ranks.size(); ++r) {
    for (std::size_t i = 0; i < stuck.program.ranks[r].compute.size(); ++i) {
      const NetworkExplainer::Place place{RankId(r), {Wait::On::compute, static_cast<std::int32_t>(i)}};
      if (!explainer.finished(place)) return place;
    }
    for (std::size_t i = 0; i < stuck.program.ranks[r].comm.size(); ++i) {
      const NetworkExplainer::Place place{RankId(r), {Wait::On::comm, static_cast<std::int32_t>(i)}};
      if (!explainer.finished(place)) return place;
    }
  }
  return std::nullopt;
}

}  // namespace

void throw_stuck(const StuckNetwork& stuck) {
  const NetworkExplainer explainer(stuck);
  std::vector<NetworkExplainer::Place> path;
  std::vector<SimulationStuck::Step> waiting;
  std::optional<NetworkExplainer::Place> place = first_unfinished(stuck, explainer);
  while (place) {
    const auto seen = std::find(path.begin(), path.end(), *place);
    if (seen != path.end()) {
      waiting.erase(waiting.begin(), waiting.begin() + (seen - path.begin()));
      break;
    }
    const std::optional<NetworkExplainer::Cause> cause = explainer.cause(*place);
    if (!cause) break;
    path.push_back(*place);
    waiting.push_back(
        {place->rank, explainer.name(*place),
         fmt::format("{}{} on rank {}", cause->how, explainer.name(cause->place), cause->place.rank.value)});
    place = cause->place;
  }
  const auto num_waiting = static_cast<std::size_t>(std::count(stuck.finished.begin(), stuck.finished.end(), false));
  throw SimulationStuck(std::move(waiting), num_waiting);
}

}  // namespace plumb

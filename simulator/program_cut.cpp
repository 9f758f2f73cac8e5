// SPDX-License-Identifier: Apache-2.0
#include "program_cut.hpp"

#include <algorithm>
#include <limits>

#include "plumb/cache/steady.hpp"

namespace plumb {
namespace {

std::int32_t length(const auto& list) { return static_cast<std::int32_t>(list.size()); }
std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

bool moves(const CommStep& step) { return step.kind == CommKind::send || step.kind == CommKind::receive; }

struct Stretch {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

// The longest around `middle` with same(i), of entry i + period and entry i, wherever both lie in it.
template <class Same>
Stretch stretch(std::int32_t size, std::int32_t middle, std::int32_t period, Same&& same) {
  Stretch found{middle, middle};
  if (period == 0) return found;
  while (found.begin > 0 && same(found.begin - 1))
    --found.begin;
  while (found.end + period < size && same(found.end))
    ++found.end;
  found.end += period;
  return found;
}

// Where a rank's computations repeat themselves, and by how many.
struct Rhythm {
  std::int32_t middle = 0;
  std::int32_t period = 0;
};

Rhythm rhythm(const std::vector<ComputeStep>& computes) {
  std::vector<Action> row;
  row.reserve(computes.size());
  for (const ComputeStep& step : computes)
    row.push_back({step.compute, {}});
  SteadyStretch best;
  for (const SteadyStretch& steady : steady_stretches(row)) {
    if (steady.end - steady.begin > best.end - best.begin) best = steady;
  }
  if (best.actions == 0) return {};
  // A period of few steps is looked back to as often as one of many.
  constexpr std::size_t most_periods = 64;
  const std::size_t times = (row.size() / most_periods + best.actions - 1) / best.actions;
  const std::size_t period = best.actions * std::max<std::size_t>(1, times);
  return {static_cast<std::int32_t>((best.begin + best.end) / 2), static_cast<std::int32_t>(period)};
}

class RankCut {
 public:
  RankCut(const Program& program, std::size_t rank, Rhythm rhythm) : rank_(program.ranks[rank]), rhythm_(rhythm) {}

  // False if the rank does not go on as the first one does.
  bool find_period() {
    if (rhythm_.middle + rhythm_.period >= length(rank_.compute)) return false;
    middle_comm_ = position_of_compute(rhythm_.middle) - rhythm_.middle;
    const std::int32_t later = position_of_compute(rhythm_.middle + rhythm_.period) - rhythm_.middle - rhythm_.period;
    comm_period_ = later - middle_comm_;
    if (middle_comm_ < 0 || comm_period_ < 0 || later > length(rank_.comm)) return false;
    for (std::int32_t i = middle_comm_; i < later && later + comm_period_ <= length(rank_.comm); ++i) {
      const CommStep& step = rank_.comm[at(i)];
      if (!moves(step)) continue;
      ++(step.kind == CommKind::send ? num_sends_ : num_receives_);
      messages_ = rank_.comm[at(i + comm_period_)].message.value - step.message.value;
      first_message_ = step.message.value;
    }
    return true;
  }

  void find_stretches(std::int32_t messages) {
    const auto same_waits = [&](Range a, Range b) {
      if (a.size() != b.size()) return false;
      for (std::uint32_t i = 0; i < a.size(); ++i) {
        const std::uint32_t before = bits_of(rank_.waits[a.begin + i]);
        const std::uint32_t by = static_cast<std::uint32_t>((before & 1) != 0 ? comm_period_ : rhythm_.period);
        if (bits_of(rank_.waits[b.begin + i]) != before + 2 * by) return false;
      }
      return true;
    };
    compute_ = stretch(length(rank_.compute), rhythm_.middle, rhythm_.period, [&](std::int32_t i) {
      const ComputeStep& a = rank_.compute[at(i)];
      const ComputeStep& b = rank_.compute[at(i + rhythm_.period)];
      return a.compute.op == b.compute.op && a.compute.chunk == b.compute.chunk && same_waits(a.waits, b.waits);
    });
    compute_.begin = std::max(compute_.begin, 1);  // the first one waits for no other before it
    compute_waits_begin_ = compute_.begin;
    const auto same_compute = [&](std::int32_t i) {
      const ComputeStep& a = rank_.compute[at(i)];
      const ComputeStep& b = rank_.compute[at(i + rhythm_.period)];
      return a.compute.op == b.compute.op && a.compute.chunk == b.compute.chunk;
    };
    while (compute_.begin > std::max(1, compute_waits_begin_ - rhythm_.period) && same_compute(compute_.begin - 1))
      --compute_.begin;
    const auto same_comm = [&](std::int32_t i) {
      const CommStep& a = rank_.comm[at(i)];
      const CommStep& b = rank_.comm[at(i + comm_period_)];
      return a.kind == b.kind && a.lane == b.lane && a.peer == b.peer &&
             (!moves(a) || b.message.value - a.message.value == messages) && a.segments.size() == b.segments.size();
    };
    comm_ = stretch(length(rank_.comm), middle_comm_, comm_period_, [&](std::int32_t i) {
      return same_comm(i) && rank_.comm[at(i)].waits.size() > 0 &&
             same_waits(rank_.comm[at(i)].waits, rank_.comm[at(i + comm_period_)].waits);
    });
    comm_waits_begin_ = comm_.begin;
    while (comm_.begin > std::max(0, comm_waits_begin_ - comm_period_) && same_comm(comm_.begin - 1))
      --comm_.begin;
  }

  // Leaves what moves other messages.
  void trim(const Stretch& messages) {
    const auto message = [&](std::int32_t i) {
      const CommStep& step = rank_.comm[at(i)];
      return moves(step) ? step.message.value : -1;
    };
    for (std::int32_t i = comm_.begin; i < comm_.end && message(i) < messages.begin; ++i) {
      if (message(i) >= 0) comm_.begin = i + 1;
    }
    for (std::int32_t i = comm_.end; i-- > comm_.begin;) {
      if (message(i) < 0) continue;
      if (message(i) < messages.end) break;
      comm_.end = i;
    }
  }

  // The first message that is moved where everything repeats.
  std::int32_t first_repeated() const {
    const std::int32_t place = std::max(position_of_compute(compute_.begin), position_of_comm(comm_.begin));
    return next_message(place - computes_before(place));
  }

  // How many periods can be left out if the simulation is to come back to where it was one period behind that message,
  // with nothing made ready by then that waits in the last period before what is left out.
  std::int32_t periods(std::int32_t message) const {
    std::int32_t comm = comm_.begin;
    while (comm < comm_.end && next_message(comm) < message)
      ++comm;
    std::int32_t compute = std::max(compute_.begin, position_of_comm(comm) - comm);
    // The first of all steps that the last period waits for, and a period at least.
    std::int32_t first_compute = compute_.end - 2 * rhythm_.period;
    std::int32_t first_comm = comm_.end - 2 * comm_period_;
    const auto look = [&](Range waits) {
      for (const Wait& wait : rank_.waits_of(waits)) {
        std::int32_t& first = wait.on == Wait::On::compute ? first_compute : first_comm;
        first = std::min(first, static_cast<std::int32_t>(wait.step));
      }
    };
    for (std::int32_t i = std::max(0, compute_.end - rhythm_.period); i < compute_.end; ++i)
      look(rank_.compute[at(i)].waits);
    for (std::int32_t i = std::max(0, comm_.end - comm_period_); i < comm_.end; ++i)
      look(rank_.comm[at(i)].waits);
    // Half a period until all ranks have come so far.
    const auto fit = [](std::int32_t steps, std::int32_t period) {
      return period == 0 ? std::numeric_limits<std::int32_t>::max() : (steps - period / 2) / period;
    };
    return std::min(fit(first_compute - compute, rhythm_.period), fit(first_comm - comm, comm_period_));
  }

  // Both lists at one place of the order, because nothing in it waits for what stands behind it.
  void cut(std::int32_t periods, ListCut& compute, ListCut& comm) const {
    compute = list_cut(length(rank_.compute), compute_, compute_waits_begin_, rhythm_.period, periods);
    comm = list_cut(length(rank_.comm), comm_, comm_waits_begin_, comm_period_, periods);
    const std::int32_t place = std::min(position_of_compute(compute.at), position_of_comm(comm.at));
    compute.at = computes_before(place);
    comm.at = place - compute.at;
  }

  std::int32_t messages() const { return messages_; }
  std::int32_t first_message() const { return first_message_; }
  std::int32_t num_sends() const { return num_sends_; }
  std::int32_t num_receives() const { return num_receives_; }

 private:
  static ListCut list_cut(std::int32_t size, const Stretch& stretch, std::int32_t waits_begin, std::int32_t period,
                          std::int32_t periods) {
    const std::int32_t left_out = periods * period;
    return {size - left_out,        stretch.begin, std::max(stretch.begin, waits_begin),
            stretch.end - left_out, left_out,      period};
  }

  // Of the first move from there on; behind the last one none is earlier.
  std::int32_t next_message(std::int32_t comm) const {
    for (; comm < length(rank_.comm); ++comm) {
      if (moves(rank_.comm[at(comm)])) return rank_.comm[at(comm)].message.value;
    }
    return std::numeric_limits<std::int32_t>::max();
  }

  // The order merges the two lists.
  std::int32_t computes_before(std::int32_t position) const {
    if (position >= length(rank_.order)) return length(rank_.compute);
    const StepRef entry = rank_.order[at(position)];
    const auto index = static_cast<std::int32_t>(entry.index);
    return entry.comm ? position - index : index;
  }
  template <class Reached>
  std::int32_t first_position(Reached&& reached) const {
    std::int32_t low = 0;
    std::int32_t high = length(rank_.order);
    while (low < high) {
      const std::int32_t middle = low + (high - low) / 2;
      if (reached(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
  // The last place before which there are so many.
  std::int32_t position_of_compute(std::int32_t index) const {
    return first_position([&](std::int32_t position) { return computes_before(position + 1) > index; });
  }
  std::int32_t position_of_comm(std::int32_t index) const {
    return first_position([&](std::int32_t position) { return position + 1 - computes_before(position + 1) > index; });
  }

  const RankProgram& rank_;
  Rhythm rhythm_;
  std::int32_t middle_comm_ = 0;
  std::int32_t comm_period_ = 0;
  std::int32_t messages_ = 0;
  std::int32_t first_message_ = -1;
  std::int32_t num_sends_ = 0;
  std::int32_t num_receives_ = 0;
  Stretch compute_;
  Stretch comm_;
  std::int32_t compute_waits_begin_ = 0;  // from there on the waits repeat as well
  std::int32_t comm_waits_begin_ = 0;
};

}  // namespace

ProgramCut whole(const Program& program) {
  const auto all = [](std::int32_t size) {
    return ListCut{.size = size, .begin = 0, .waits_begin = 0, .at = size, .left_out = 0, .period = 0};
  };
  ProgramCut cut{.compute = {}, .comm = {}, .messages = all(length(program.messages)), .periods = 0};
  for (const RankProgram& rank : program.ranks) {
    cut.compute.push_back(all(length(rank.compute)));
    cut.comm.push_back(all(length(rank.comm)));
  }
  return cut;
}

std::optional<ProgramCut> find_cut(const Program& program, int kept) {
  const Rhythm rhythm = plumb::rhythm(program.ranks.front().compute);
  if (rhythm.period == 0) return {};
  std::vector<RankCut> ranks;
  std::int32_t period = 0;
  std::int32_t first_message = -1;
  std::int32_t num_sends = 0;
  std::int32_t num_receives = 0;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    RankCut& rank = ranks.emplace_back(program, r, rhythm);
    if (!rank.find_period()) return {};
    num_sends += rank.num_sends();
    num_receives += rank.num_receives();
    if (rank.first_message() < 0) continue;
    period = rank.messages();
    first_message = rank.first_message();
  }
  // Each message of a period has its two ends in it.
  if (period < 0 || num_sends != period || num_receives != period) return {};
  const auto middle = std::max(0, first_message);
  const Stretch messages = stretch(length(program.messages), middle, period, [&](std::int32_t i) {
    const Message& a = program.messages[at(i)];
    const Message& b = program.messages[at(i + period)];
    return a.transfer == b.transfer && a.direction == b.direction;
  });
  std::int32_t first_repeated = 0;
  for (RankCut& rank : ranks) {
    rank.find_stretches(period);
    rank.trim(messages);
    if (period > 0) first_repeated = std::max(first_repeated, rank.first_repeated());
  }
  std::int32_t periods = program.layout.microbatches();
  for (const RankCut& rank : ranks)
    periods = std::min(periods, rank.periods(first_repeated));
  if (period > 0) periods = std::min(periods, (messages.end - messages.begin) / period);
  periods -= kept;
  if (periods < 1 || 4 * std::int64_t{periods} * rhythm.period < length(program.ranks.front().compute)) return {};
  const std::int32_t left_out = periods * period;
  const std::int32_t num_messages = length(program.messages) - left_out;
  ProgramCut cut{.compute = std::vector<ListCut>(ranks.size()),
                 .comm = std::vector<ListCut>(ranks.size()),
                 .messages = {num_messages, messages.begin, messages.begin, messages.end - left_out, left_out, period},
                 .periods = periods};
  for (std::size_t r = 0; r < ranks.size(); ++r)
    ranks[r].cut(periods, cut.compute[r], cut.comm[r]);
  return cut;
}

}  // namespace plumb

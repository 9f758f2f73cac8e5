// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/comms_program.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "comms_tables.hpp"
#include "plumb/schedule/check.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/invariant.hpp"

namespace plumb {
namespace {

constexpr std::int32_t none = -1;

DepthMap one_sublayer_per_chunk(const Layout& layout) {
  const int chunks = layout.num_chunks();
  return {chunks, chunks, DepthMap::even_cuts(chunks, chunks, chunks), Residual::standard};
}

// The file's items in an order in which they can happen if sends are buffered, which is the order of the messages in
// the program: of those that are left when nobody can move any more, rank by rank.
class MessageOrder {
 public:
  explicit MessageOrder(const CommsSchedule& schedule)
      : schedule_(schedule), next_(schedule.ranks.size(), 0), sent_{table(), table()}, awaited_by_(next_.size()) {}

  // `visit(hop, microbatch)` for each message, by its send; then for receives without one.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      ready_.push_back(rank);
      while (!ready_.empty()) {
        const std::size_t runs = ready_.back();
        ready_.pop_back();
        advance(runs, visit);
      }
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      for (; next_[rank] < schedule_.ranks[rank].size(); ++next_[rank]) {
        if (const CommAction* comm = message_at(rank); comm != nullptr && is_send(comm->op)) announce(*comm, visit);
      }
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      for (next_[rank] = 0; next_[rank] < schedule_.ranks[rank].size(); ++next_[rank]) {
        if (const CommAction* comm = message_at(rank); comm != nullptr && !is_sent(*comm)) announce(*comm, visit);
      }
    }
  }

 private:
  PerCompute<std::int8_t> table() const { return {schedule_.layout, std::int8_t{0}}; }

  const CommAction* message_at(std::size_t rank) const {
    const CommAction* comm = std::get_if<CommAction>(&schedule_.ranks[rank][next_[rank]]);
    return comm != nullptr && moves_data(comm->op) ? comm : nullptr;
  }

  std::int8_t& sent(const CommAction& action) {
    const Hop hop = hop_of(action);
    return sent_[static_cast<std::size_t>(hop.direction)].at(hop.before, action.microbatch);
  }
  bool is_sent(const CommAction& action) { return sent(action) != 0; }

  template <class Visit>
  void advance(std::size_t rank, Visit& visit) {
    for (; next_[rank] < schedule_.ranks[rank].size(); ++next_[rank]) {
      const CommAction* comm = message_at(rank);
      if (comm == nullptr) continue;
      if (!is_send(comm->op)) {
        if (!is_sent(*comm)) {
          awaited_by_[schedule_.layout.rank_of(partner_of(*comm).chunk).index()].push_back(rank);
          return;
        }
        continue;
      }
      announce(*comm, visit);
    }
  }

  template <class Visit>
  void announce(const CommAction& comm, Visit& visit) {
    sent(comm) = 1;
    visit(hop_of(comm), comm.microbatch);
    // Whoever waits for this rank looks again; it may wait for something else of it.
    std::vector<std::size_t>& waiting = awaited_by_[schedule_.layout.rank_of(comm.chunk).index()];
    ready_.insert(ready_.end(), waiting.begin(), waiting.end());
    waiting.clear();
  }

  const CommsSchedule& schedule_;
  std::vector<std::size_t> next_;                     // [rank]
  std::array<PerCompute<std::int8_t>, 2> sent_;       // [direction]: over the hop behind a chunk
  std::vector<std::vector<std::size_t>> awaited_by_;  // [rank]: ranks that wait for a send of it
  std::vector<std::size_t> ready_;
};

class ProgramMaker {
 public:
  explicit ProgramMaker(const CommsSchedule& schedule)
      : schedule_(schedule),
        program_{.layout = schedule.layout,
                 .depth = one_sublayer_per_chunk(schedule.layout),
                 .routing = make_routing(schedule.layout, one_sublayer_per_chunk(schedule.layout), Policy::standard),
                 .schedule_name = schedule.name,
                 .forward_only = schedule.forward_only,
                 .post_ahead = 1,
                 .messages = {},
                 .ranks = {}},
        steps_(schedule.layout, Steps{}),
        messages_{PerCompute<std::int32_t>(schedule.layout, none), PerCompute<std::int32_t>(schedule.layout, none)} {}

  Program make() {
    number_messages();
    program_.ranks.resize(schedule_.ranks.size());
    for (RankId rank; rank.index() < program_.ranks.size(); rank = rank.next()) {
      list_steps(rank);
    }
    for (RankId rank; rank.index() < program_.ranks.size(); rank = rank.next()) {
      number_slots(rank);
      connect(rank);
    }
    return std::move(program_);
  }

 private:
  // The steps of (chunk, microbatch) on the chunk's rank: computations, then communication.
  struct Steps {
    std::int32_t forward = none;
    std::int32_t backward = none;
    std::array<std::int32_t, 4> comm{none, none, none, none};  // [CommOp]
    std::int32_t of(CommOp op) const { return comm[static_cast<std::size_t>(op)]; }
  };

  void number_messages() {
    std::vector<std::int32_t> transfer_of_hop(static_cast<std::size_t>(schedule_.layout.num_chunks()), none);
    for (std::size_t t = 0; t < program_.routing.transfers.size(); ++t) {
      transfer_of_hop[program_.routing.transfers[t].from_chunk.index()] = static_cast<std::int32_t>(t);
    }
    MessageOrder(schedule_).for_each([&](const Hop& hop, Microbatch m) {
      messages_[static_cast<std::size_t>(hop.direction)].at(hop.before, m) =
          static_cast<std::int32_t>(program_.messages.size());
      program_.messages.push_back({TransferId(transfer_of_hop[hop.before.index()]), m, hop.direction});
    });
  }

  void list_steps(RankId rank) {
    RankProgram& out = program_.ranks[rank.index()];
    for (const CommsItem& item : schedule_.ranks[rank.index()]) {
      if (const Action* action = std::get_if<Action>(&item)) {
        for_each_compute(*action, [&](const Compute& compute) { add_compute(out, compute); });
        if (action->second) out.compute[out.compute.size() - 2].overlaps_next = true;
      } else if (const CommAction& comm = std::get<CommAction>(item); moves_data(comm.op)) {
        add_comm(out, comm);
      }
    }
  }

  void add_compute(RankProgram& out, const Compute& compute) {
    const auto index = static_cast<std::int32_t>(out.compute.size());
    out.compute.push_back({compute, false, {}, {}, {}});
    out.order.push_back({false, index});
    Steps& steps = steps_.at(compute.chunk, compute.microbatch);
    if (compute.op == Op::forward) {
      steps.forward = index;
    } else if (compute.op != Op::backward_weight) {
      steps.backward = index;
    }
  }

  void add_comm(RankProgram& out, const CommAction& comm) {
    const auto index = static_cast<std::int32_t>(out.comm.size());
    const Hop hop = hop_of(comm);
    out.comm.push_back(
        {.kind = is_send(comm.op) ? CommKind::send : CommKind::receive,
         .first_touch = false,
         .lane = MessageLane::urgent,
         .peer = schedule_.layout.rank_of(partner_of(comm).chunk),
         .message = MessageId(messages_[static_cast<std::size_t>(hop.direction)].at(hop.before, comm.microbatch)),
         .holding = HoldingId(none),
         .waits = {},
         .segments = {},
         .releases = {}});
    // A row is run in order: a send or receive is posted no sooner than the computation before it has finished.
    if (!out.compute.empty()) {
      const auto before = static_cast<std::int32_t>(out.compute.size()) - 1;
      out.comm.back().waits = push(out.waits, {Wait::On::compute, before});
    }
    out.order.push_back({true, index});
    steps_.at(comm.chunk, comm.microbatch).comm[static_cast<std::size_t>(comm.op)] = index;
  }

  // Every cut at which one of the rank's chunks begins or ends has one tensor of each class per microbatch.
  void number_slots(RankId rank) {
    slot_of_cut_.assign(static_cast<std::size_t>(schedule_.layout.num_chunks()), none);
    std::int32_t num_slots = 0;
    for (const ChunkId chunk : schedule_.layout.chunks_on(rank)) {
      for (const ChunkId before : {chunk.previous(), chunk}) {
        if (before.value < 0 || before.value + 1 == schedule_.layout.num_chunks()) continue;
        if (slot_of_cut_[before.index()] != none) continue;
        slot_of_cut_[before.index()] = num_slots;
        num_slots += schedule_.layout.microbatches();
      }
    }
    program_.ranks[rank.index()].num_value_slots = num_slots;
    program_.ranks[rank.index()].num_gradient_slots = schedule_.forward_only ? 0 : num_slots;
  }

  Slot slot(SlotClass slot_class, ChunkId before, Microbatch m) const {
    return {slot_class, slot_of_cut_[before.index()] + m.value};
  }

  void connect(RankId rank) {
    RankProgram& out = program_.ranks[rank.index()];
    for (ComputeStep& step : out.compute) {
      if (step.compute.op != Op::backward_weight) connect_compute(out, step);
    }
    for (CommStep& step : out.comm) {
      const Message& message = program_.messages[step.message.index()];
      const ChunkId before = program_.transfer_of(step.message).from_chunk;
      const bool forward = message.direction == Direction::forward;
      const SlotClass slot_class = forward ? SlotClass::value : SlotClass::gradient;
      step.segments = push(out.segments, slot(slot_class, before, message.microbatch));
      if (step.kind == CommKind::receive) continue;
      const Steps& made = steps_.at(forward ? before : before.next(), message.microbatch);
      const std::int32_t producer = forward ? made.forward : made.backward;
      if (producer != none) wait_for_producer(out, step, producer);
      step.releases = release(out, slot(slot_class, before, message.microbatch));
    }
  }

  // Unless the computation the step stands behind, which it waits for already, is that one or a later one.
  static void wait_for_producer(RankProgram& out, CommStep& step, std::int32_t producer) {
    if (step.waits.size() > 0 && out.waits[step.waits.begin].step >= producer) return;
    const Range before = step.waits;
    step.waits = push(out.waits, {Wait::On::compute, producer});
    if (before.size() > 0) step.waits.end = push(out.waits, Wait(out.waits[before.begin])).end;
  }

  void connect_compute(RankProgram& out, ComputeStep& step) {
    const ChunkId chunk = step.compute.chunk;
    const Microbatch m = step.compute.microbatch;
    const Steps& steps = steps_.at(chunk, m);
    const bool forward = step.compute.op == Op::forward;
    const bool has_next = chunk.value + 1 < schedule_.layout.num_chunks();
    const std::int32_t arrival = steps.of(forward ? CommOp::receive_forward : CommOp::receive_backward);
    if (arrival != none) step.waits = push(out.waits, {Wait::On::comm, arrival});
    step.operands.begin = static_cast<std::uint32_t>(out.operands.size());
    const auto touch = [&](Role role, ChunkId before) {
      out.operands.emplace_back(role, false, slot(slot_class(role), before, m).index, BlockId{});
    };
    if (chunk.value > 0) touch(Role::partial_in, chunk.previous());
    if (forward && has_next) touch(Role::partial_out, chunk);
    if (!forward && has_next) touch(Role::grad_partial_out, chunk);
    if (!forward && chunk.value > 0) touch(Role::grad_partial_in, chunk.previous());
    step.operands.end = static_cast<std::uint32_t>(out.operands.size());
    step.releases.begin = static_cast<std::uint32_t>(out.releases.size());
    // What was read for the last time, and what nobody will ever read because its hop is empty.
    const bool reads_last = !forward || schedule_.forward_only;
    if (chunk.value > 0 && reads_last) (void)release(out, slot(SlotClass::value, chunk.previous(), m));
    if (!forward && has_next) (void)release(out, slot(SlotClass::gradient, chunk, m));
    if (forward && crosses(schedule_.layout, chunk) && steps.of(CommOp::send_forward) == none) {
      (void)release(out, slot(SlotClass::value, chunk, m));
    }
    if (!forward && crosses(schedule_.layout, chunk.previous()) && steps.of(CommOp::send_backward) == none) {
      (void)release(out, slot(SlotClass::gradient, chunk.previous(), m));
    }
    step.releases.end = static_cast<std::uint32_t>(out.releases.size());
  }

  template <class T>
  static Range push(std::vector<T>& pool, T value) {
    pool.push_back(value);
    return {static_cast<std::uint32_t>(pool.size()) - 1, static_cast<std::uint32_t>(pool.size())};
  }

  static Range release(RankProgram& out, Slot slot) { return push(out.releases, Release{slot, {}}); }

  const CommsSchedule& schedule_;
  Program program_;
  PerCompute<Steps> steps_;
  std::array<PerCompute<std::int32_t>, 2> messages_;  // [direction]: over the hop behind a chunk
  std::vector<std::int32_t> slot_of_cut_;  // [chunk before the cut]: of the rank at hand; microbatches follow
};

// What would make the conversion meaningless, or nothing.
std::string unfit(const CommsSchedule& schedule) {
  const Layout& layout = schedule.layout;
  PerCompute<std::uint8_t> seen(layout, 0);
  for (RankId rank; rank.index() < schedule.ranks.size(); rank = rank.next()) {
    for (const CommsItem& item : schedule.ranks[rank.index()]) {
      const CommAction* comm = std::get_if<CommAction>(&item);
      if (comm == nullptr) continue;
      if (comm->chunk.value < 0 || comm->chunk.value >= layout.num_chunks() || comm->microbatch.value < 0 ||
          comm->microbatch.value >= layout.microbatches()) {
        return fmt::format("rank {}: {} names what does not exist", rank.value, to_string(*comm));
      }
      if (layout.rank_of(comm->chunk) != rank) {
        return fmt::format("rank {}: {} belongs to rank {}", rank.value, to_string(*comm),
                           layout.rank_of(comm->chunk).value);
      }
      if (!moves_data(comm->op)) continue;
      if (!crosses(layout, hop_of(*comm).before)) {
        return fmt::format("rank {}: {} has no other rank at its other end", rank.value, to_string(*comm));
      }
      if (schedule.forward_only && !is_forward(comm->op)) {
        return fmt::format("rank {}: {} moves a gradient, but the schedule is forward-only", rank.value,
                           to_string(*comm));
      }
      std::uint8_t& ops = seen.at(comm->chunk, comm->microbatch);
      const auto bit = static_cast<std::uint8_t>(1U << static_cast<unsigned>(comm->op));
      if ((ops & bit) != 0) return fmt::format("rank {}: {} is there twice", rank.value, to_string(*comm));
      ops = static_cast<std::uint8_t>(ops | bit);
    }
  }
  return {};
}

}  // namespace

Program comms_program(const CommsSchedule& schedule) {
  require_legal(computations_of(schedule));
  if (const std::string why = unfit(schedule); !why.empty()) {
    throw InputError(fmt::format("schedule '{}': {}", schedule.name, why));
  }
  return ProgramMaker(schedule).make();
}

}  // namespace plumb

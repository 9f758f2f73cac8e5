// SPDX-License-Identifier: Apache-2.0
#include "engine_state.hpp"

#include <limits>

#include "plumb/schedule/error.hpp"

namespace plumb {

EngineState::EngineState(const Program& the_program, ChannelOrder order, Duplex duplex)
    : program(the_program),
      channels(program, order),
      arbiter(program.layout.pp(), duplex),
      ends(program.messages.size()),
      running(program.ranks.size(), 0),
      num_computed(program.ranks.size(), 0),
      open(program.ranks.size()) {
  std::size_t num_edges = 1;
  for (const RankProgram& rank : program.ranks) {
    first_compute_.push_back(static_cast<std::int32_t>(num_steps_));
    first_comm_.push_back(static_cast<std::int32_t>(num_steps_ + rank.compute.size()));
    first_edge_.push_back(num_edges);
    num_steps_ += rank.compute.size() + rank.comm.size();
    num_edges += rank.waits.size();
    if (num_steps_ > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()) ||
        num_edges > std::numeric_limits<std::uint32_t>::max()) {
      throw InputError("the program has more than 2^31 steps: simulate fewer microbatches");
    }
  }
  states = ZeroedArray<StepState>(num_steps_);
  edges_ = ZeroedArray<Edge>(num_edges);
  gates.reserve(program.messages.size());
  for (const std::uint8_t num_before : channels.num_before())
    gates.push_back(static_cast<std::uint8_t>(send_missing + receive_missing + one_before * num_before));
  timeline.messages.resize(program.messages.size());
  for (const RankProgram& rank : program.ranks) {
    RankTimeline& times = timeline.ranks.emplace_back();
    times.compute.resize(rank.compute.size());
    times.comm_done.resize(rank.comm.size(), unfinished);
  }
}

SimTime EngineState::computed(RankId rank, Wait finished) const {
  const RankTimeline& times = timeline.ranks[rank.index()];
  if (finished.on == Wait::On::compute) return times.compute[finished.step].end;
  auto step = static_cast<std::int32_t>(finished.step);
  SimTime by{0};
  // What was told has no state of its own, but that of the step which it was told after.
  const SimTime done = times.comm_done[finished.step];
  for (auto period = told.rbegin(); period != told.rend(); ++period) {
    if (done <= period->begin || done > period->end) continue;
    const auto periods = static_cast<std::int32_t>((done - period->begin - SimTime(1)) / period->duration) + 1;
    step -= periods * period->comms[rank.index()];
    by = periods * period->duration;
    break;
  }
  const StepState& state = comm_state(rank, step);
  return later(state.is_end() ? computed(state.message()) : state.inputs_computed, by);
}

SimTime EngineState::last_computed(RankId rank, Range waits) const {
  SimTime last{0};
  for (const Wait wait : program.ranks[rank.index()].waits_of(waits))
    last = std::max(last, computed(rank, wait));
  return last;
}

SimTime EngineState::compute_inputs(RankId rank, std::int32_t index) const {
  const SimTime last = last_computed(rank, compute(rank, index).waits);
  return index == 0 ? last : std::max(last, computed(rank, {Wait::On::compute, index - 1}));
}

SimTime EngineState::comm_inputs(RankId rank, std::int32_t index) const {
  return last_computed(rank, comm(rank, index).waits);
}

void EngineState::forget_edges(RankId rank, Range waits) {
  for (const Wait wait : program.ranks[rank.index()].waits_of(waits))
    states[step_id(rank, wait).index()].first_edge = 0;
}

EngineState::Opened EngineState::open_step(RankId rank, StepId step, Range waits) {
  const RankProgram& rank_program = program.ranks[rank.index()];
  StepState& state = states[step.index()];
  state.pending = 0;
  state.inputs_computed = SimTime(0);
  SimTime ready{0};
  for (std::uint32_t w = waits.begin; w < waits.end; ++w) {
    const Wait wait = rank_program.waits[w];
    if (has_finished(rank, wait)) {
      ready = std::max(ready, timeline.finished(rank, wait));
      state.inputs_computed = std::max(state.inputs_computed, computed(rank, wait));
      continue;
    }
    const StepId awaited = step_id(rank, wait);
    const auto edge = static_cast<std::uint32_t>(first_edge_[rank.index()] + w);
    edges_[edge] = {step, states[awaited.index()].first_edge};
    states[awaited.index()].first_edge = edge;
    ++state.pending;
  }
  return {step, state.pending, ready};
}

EngineState::Opened EngineState::open_compute(RankId rank, std::int32_t index) {
  Opened opened = open_step(rank, compute_id(rank, index), compute(rank, index).waits);
  StepState& state = states[opened.step.index()];
  state.subject = StepState::local;
  if (index == 0) return opened;
  // The one before it tells it without an edge.
  if (index > num_computed[rank.index()]) {
    opened.pending = ++state.pending;
  } else {
    const SimTime end = timeline.ranks[rank.index()].compute[static_cast<std::size_t>(index - 1)].end;
    opened.ready = std::max(opened.ready, end);
    state.inputs_computed = std::max(state.inputs_computed, end);
  }
  return opened;
}

EngineState::Opened EngineState::open_comm(RankId rank, std::int32_t index) {
  const CommStep& step = comm(rank, index);
  const Opened opened = open_step(rank, comm_id(rank, index), step.waits);
  StepState& state = states[opened.step.index()];
  state.subject = StepState::local;
  if (step.kind != CommKind::send && step.kind != CommKind::receive) return opened;
  const bool sends = step.kind == CommKind::send;
  const RankId here = sends ? program.sender(step.message) : program.receiver(step.message);
  Ends& both = ends[step.message.index()];
  std::int32_t& mine = sends ? both.send : both.receive;
  const std::int32_t other = sends ? both.receive : both.send;
  std::int32_t& units = timeline.messages[step.message.index()].units;
  const auto segments = static_cast<std::int32_t>(step.segments.size());
  if (here != rank || (mine != 0 && mine != opened.step.value + 1) || (other != 0 && units != segments)) {
    throw NotOpened{};
  }
  mine = opened.step.value + 1;
  units = segments;
  state.subject = 2 * step.message.value + (sends ? 0 : 1);
  return opened;
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "plumb/rehearsal/rehearse.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "plumb/runtime/run_error.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

using Nanoseconds = std::chrono::nanoseconds;

// Between the slowest rank's word that it is ready and the start of a step: time for all to hear of it.
constexpr std::chrono::milliseconds start_ahead{2};

Nanoseconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

// Both ends of every message are in flight at most once per step.
std::size_t num_messages(const Program& program) { return program.messages.size(); }

// Everything that a rank sends and receives in a step, in the order of its list.
std::vector<StreamPlace> stream_of(const Program& program, RankId rank) {
  std::vector<StreamPlace> order;
  for (const CommStep& step : program.ranks[rank.index()].comm) {
    if (step.kind != CommKind::send && step.kind != CommKind::receive) continue;
    order.push_back({PeerId{step.peer.value}, step.lane == MessageLane::urgent ? Lane::urgent : Lane::bulk,
                     step.kind == CommKind::send});
  }
  return order;
}

class RankRun {
 public:
  RankRun(const RehearsalPlan& plan, const RankPlace& place) : plan_(plan), place_(place) {
    if (place.links != nullptr) shaped_.emplace(place.transport, *place.links);
    RankSpot* spot = place.spots.empty() ? nullptr : &place.spots[place.rank.index()];
    log_.emplace(place.rank, nullptr, shaped_ ? &shaped_->last_times() : nullptr, spot);
    play_.costs = &plan.costs;
    play_.longest_extra = plan.longest_extra;
    play_.seed = plan.seed;
    if (plan.communication_waits_for_compute && shaped_) play_.waits_for_compute = &*shaped_;
    if (place.prepare) place.prepare(play_);
    StageTable stages(static_cast<std::size_t>(plan.program->layout.num_chunks()), nullptr);
    for (const ChunkId chunk : plan.program->layout.chunks_on(place.rank)) {
      stages_.push_back(std::make_unique<RehearsalStage>(place.rank, chunk, play_));
      stages[chunk.index()] = stages_.back().get();
    }
    ExecutorOptions options;
    options.wait_limit = plan.wait_limit;
    options.observer = &*log_;
    options.poison = Poison::never;
    Transport& transport = shaped_ ? static_cast<Transport&>(*shaped_) : place.transport;
    executor_.emplace(place.rank, std::move(stages), &transport, &place.control, std::move(options));
    program_ = add(plan.program);
    if (plan.baseline) baseline_ = add(plan.baseline);
  }

  RankOutcome run() {
    sharpen_sleeps();
    RankOutcome outcome;
    for (int step = 0; step <= plan_.steps; ++step) {
      if (plan_.baseline) keep(outcome.baseline, one_step(*plan_.baseline, *baseline_), step);
      const MeasuredStep& last = keep(outcome.program, one_step(*plan_.program, program_), step);
      if (step > 0 && place_.on_step) place_.on_step(step, Nanoseconds(last.record.end_ns - last.agreed_start_ns));
    }
    outcome.num_checked = play_.num_checked;
    outcome.num_mismatches = play_.num_mismatches;
    outcome.first_mismatch = play_.first_mismatch;
    return outcome;
  }

 private:
  ProgramHandle add(const std::shared_ptr<const Program>& program) {
    log_->expect(*program);
    return executor_->prepare(program, plan_.shape);
  }

  // The first step warms up and is not kept, but its successor takes its place.
  static const MeasuredStep& keep(std::vector<MeasuredStep>& kept, MeasuredStep step, int number) {
    if (number == 1) kept.clear();
    kept.push_back(std::move(step));
    return kept.back();
  }

  MeasuredStep one_step(const Program& program, ProgramHandle handle) {
    play_.program = &program;
    play_.step = num_steps_;
    if (shaped_ && plan_.single_stream) shaped_->announce(stream_of(program, place_.rank));
    MeasuredStep measured;
    measured.agreed_start_ns = agree_on_start().count();
    std::this_thread::sleep_for(Nanoseconds(measured.agreed_start_ns) - now());
    log_->begin(program, num_steps_++);
    try {
      measured.result = executor_->run(handle);
    } catch (const StallError& stall) {
      throw StallError(stall.rank(), stall.action(),
                       fmt::format("{}; {}", stall.waited_for(), who_holds_up(program, place_.spots, now().count())),
                       stall.peer(), plan_.wait_limit);
    }
    log_->end();
    measured.record = log_->record();
    return measured;
  }

  Nanoseconds agree_on_start() {
    const std::vector<std::string> ready = place_.control.exchange(fmt::to_string(now().count()), plan_.wait_limit);
    std::int64_t latest = 0;
    for (const std::string& text : ready) {
      std::int64_t at = 0;
      std::from_chars(text.data(), text.data() + text.size(), at);
      latest = std::max(latest, at);
    }
    return Nanoseconds(latest) + start_ahead;
  }

  const RehearsalPlan& plan_;
  const RankPlace& place_;
  std::optional<ShapedTransport> shaped_;
  std::optional<StepLog> log_;
  Play play_;
  std::vector<std::unique_ptr<RehearsalStage>> stages_;
  std::optional<Executor> executor_;
  ProgramHandle program_;
  std::optional<ProgramHandle> baseline_;
  std::int64_t num_steps_ = 0;
};

// --- bytes
// ------------------------------------------------------------------------------------------------------------

template <class T>
void put(std::string& bytes, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& bytes, const std::string& text) {
  put(bytes, std::uint64_t{text.size()});
  bytes += text;
}

void put_steps(std::string& bytes, const std::vector<MeasuredStep>& steps) {
  put(bytes, std::uint64_t{steps.size()});
  for (const MeasuredStep& step : steps) {
    put(bytes, step.agreed_start_ns);
    put(bytes, step.result);
    put_text(bytes, to_bytes(step.record));
  }
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view text() { return take(get<std::uint64_t>()); }
  std::vector<MeasuredStep> steps() {
    std::vector<MeasuredStep> all;
    for (auto left = get<std::uint64_t>(); left > 0; --left) {
      MeasuredStep& step = all.emplace_back();
      step.agreed_start_ns = get<std::int64_t>();
      step.result = get<StepResult>();
      step.record = record_from_bytes(text());
    }
    return all;
  }

 private:
  std::string_view take(std::size_t size) {
    if (size > rest_.size()) throw InputError("the outcome of a rank is cut off");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::string_view rest_;
};

}  // namespace

LinkShape link_shape(const RehearsalPlan& plan) {
  const Link& link = plan.costs.link(RankId{0}, RankId{1});
  LinkShape result;
  result.urgent_first = plan.urgent_first;
  result.single_stream = plan.single_stream;
  result.latency = std::chrono::duration_cast<Nanoseconds>(link.latency);
  result.ns_per_byte = to_us(link.value_unit) * 1e3 / static_cast<double>(plan.shape.value_bytes());
  return result;
}

std::size_t most_messages(const RehearsalPlan& plan) {
  return std::max(num_messages(*plan.program), plan.baseline ? num_messages(*plan.baseline) : 0) + 1;
}

std::int64_t memory_needed_bytes(const RehearsalPlan& plan) {
  constexpr std::int64_t per_rank = std::int64_t{1} << 20;  // two threads' stacks, tables, records
  std::int64_t sum = static_cast<std::int64_t>(most_messages(plan)) * 512;
  for (std::size_t r = 0; r < plan.program->ranks.size(); ++r) {
    std::int64_t values = 0;
    std::int64_t gradients = 0;
    for (const Program* program : {plan.program.get(), plan.baseline.get()}) {
      if (program == nullptr) continue;
      values = std::max<std::int64_t>(values, program->ranks[r].num_value_slots);
      gradients = std::max<std::int64_t>(gradients, program->ranks[r].num_gradient_slots);
    }
    sum += values * static_cast<std::int64_t>(plan.shape.value_bytes()) +
           gradients * static_cast<std::int64_t>(plan.shape.gradient_bytes()) + per_rank;
  }
  return sum;
}

RankOutcome rehearse_on_rank(const RehearsalPlan& plan, const RankPlace& place) { return RankRun(plan, place).run(); }

std::string who_holds_up(const Program& program, std::span<const RankSpot> spots, std::int64_t now_ns) {
  std::int64_t longest = 0;
  std::size_t rank = 0;
  std::int32_t compute = 0;
  for (std::size_t r = 0; r < spots.size(); ++r) {
    const std::int64_t since = spots[r].running_since_ns.load(std::memory_order_acquire);
    if (since == 0 || (longest != 0 && since >= longest)) continue;
    longest = since;
    rank = r;
    compute = spots[r].compute.load(std::memory_order_relaxed);
  }
  if (longest == 0) return "no rank has the inputs of its next action: a message is lost";
  return fmt::format("the first rank whose next action had its inputs ready is rank {}: in {} for {:.3f} s", rank,
                     to_string(program.ranks[rank].compute[static_cast<std::size_t>(compute)].compute),
                     static_cast<double>(now_ns - longest) * 1e-9);
}

std::string to_bytes(const RankOutcome& outcome) {
  std::string bytes;
  put_steps(bytes, outcome.program);
  put_steps(bytes, outcome.baseline);
  put(bytes, outcome.num_checked);
  put(bytes, outcome.num_mismatches);
  put_text(bytes, outcome.first_mismatch);
  return bytes;
}

RankOutcome outcome_from_bytes(std::string_view bytes) {
  Reader reader(bytes);
  RankOutcome outcome;
  outcome.program = reader.steps();
  outcome.baseline = reader.steps();
  outcome.num_checked = reader.get<std::int64_t>();
  outcome.num_mismatches = reader.get<std::int64_t>();
  outcome.first_mismatch = reader.text();
  return outcome;
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "plumb/runtime/event_log.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <ostream>
#include <vector>

#include <fmt/format.h>

#include "plumb/cache/encode.hpp"

namespace plumb {
namespace {

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

// When the first step that waited for a message began: a computation's start, a message's post. never: nothing did.
std::vector<std::int64_t> first_uses(const RankProgram& steps, const StepRecord& record) {
  std::vector<std::int64_t> used(steps.comm.size(), never);
  const auto use = [&](Range waits, std::int64_t at) {
    if (at == 0) return;
    for (const Wait& wait : steps.waits_of(waits)) {
      if (wait.on != Wait::On::comm) continue;
      std::int64_t& first = used[static_cast<std::size_t>(wait.step)];
      first = std::min(first, at);
    }
  };
  for (std::size_t i = 0; i < steps.compute.size(); ++i)
    use(steps.compute[i].waits, record.compute[i].start_ns);
  for (std::size_t i = 0; i < steps.comm.size(); ++i)
    use(steps.comm[i].waits, record.comm[i].posted_ns);
  // A sum has no time of its own: it counts as used when what it was added to is.
  for (std::size_t i = steps.comm.size(); i-- > 0;) {
    if (steps.comm[i].kind == CommKind::add) use(steps.comm[i].waits, used[i] == never ? 0 : used[i]);
  }
  return used;
}

std::string action_of(const Program& program, const CommStep& step) {
  const Transfer& transfer = program.transfer_of(step.message);
  const Message& message = program.messages[step.message.index()];
  const bool forward = message.direction == Direction::forward;
  const bool sends = step.kind == CommKind::send;
  return fmt::format("{}{}_{}{}", (sends == forward ? transfer.from_chunk : transfer.to_chunk).value,
                     sends ? "SEND" : "RECV", forward ? 'F' : 'B', message.microbatch.value);
}

}  // namespace

void write_log_header(std::ostream& out, const Program& program, const SlotShape& shape, const std::string& made_by) {
  const Layout& layout = program.layout;
  out << fmt::format(
      "{{\"plumb_log\":1,\"made_by\":\"{}\",\"program\":\"{}\",\"schedule\":\"{}\",\"cache\":\"{}\",\"pp\":{},\"vp\":{}"
      ","
      "\"microbatches\":{},\"value_bytes\":{},\"gradient_bytes\":{}}}\n",
      made_by, to_string(digest(program)), program.schedule_name, to_string(program.routing.policy), layout.pp(),
      layout.vp(), layout.microbatches(), shape.value_bytes(), shape.gradient_bytes());
}

void write_log_step(std::ostream& out, const Program& program, RankId rank, const StepRecord& record,
                    std::int64_t zero_ns) {
  const RankProgram& steps = program.ranks[rank.index()];
  const std::vector<std::int64_t> used = first_uses(steps, record);
  const auto us = [&](std::int64_t ns) { return static_cast<double>(ns - zero_ns) * 1e-3; };
  const auto us_or_null = [&](std::int64_t ns) {
    return ns == 0 || ns == never ? std::string("null") : fmt::format("{:.3f}", us(ns));
  };
  fmt::memory_buffer text;
  const auto to = std::back_inserter(text);
  fmt::format_to(to, "{{\"step\":{},\"rank\":{},\"start_us\":{:.3f},\"end_us\":{:.3f}}}\n", record.step, rank.value,
                 us(record.start_ns), us(record.end_ns));
  for (std::size_t i = 0; i < record.compute.size(); ++i) {
    fmt::format_to(
        to, "{{\"step\":{},\"rank\":{},\"compute\":{},\"action\":\"{}\",\"start_us\":{:.3f},\"end_us\":{:.3f}}}\n",
        record.step, rank.value, i, to_string(steps.compute[i].compute), us(record.compute[i].start_ns),
        us(record.compute[i].end_ns));
  }
  for (std::size_t i = 0; i < record.comm.size(); ++i) {
    const CommStep& step = steps.comm[i];
    if (step.kind != CommKind::send && step.kind != CommKind::receive) continue;
    const StepRecord::MessageEnd& end = record.comm[i];
    fmt::format_to(to,
                   "{{\"step\":{},\"rank\":{},\"comm\":{},\"message\":{},\"action\":\"{}\",\"peer\":{},\"lane\":\"{}\","
                   "\"units\":{},\"posted_us\":{:.3f},\"started_us\":{},\"finished_us\":{:.3f},\"consumed_us\":{}}}\n",
                   record.step, rank.value, i, step.message.value, action_of(program, step), step.peer.value,
                   step.lane == MessageLane::urgent ? "urgent" : "bulk", step.segments.size(), us(end.posted_ns),
                   us_or_null(end.started_ns), us(end.finished_ns),
                   us_or_null(step.kind == CommKind::receive ? used[i] : never));
  }
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
}

}  // namespace plumb

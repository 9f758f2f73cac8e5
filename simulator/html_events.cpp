// SPDX-License-Identifier: Apache-2.0
#include "html_events.hpp"

#include <algorithm>
#include <functional>

#include "html_bytes.hpp"

namespace plumb {
namespace {

constexpr std::int64_t largest_exact = std::int64_t{1} << 53;

// Which message a computation started with: the one that brought the last of what it waited for.
std::optional<MessageId> awaited_message(const Program& program, const Timeline& timeline, RankId rank,
                                         std::size_t index) {
  const RankProgram& steps = program.ranks[rank.index()];
  SimTime latest{-1};
  const CommStep* last = nullptr;
  for (const Wait& wait : steps.waits_of(steps.compute[index].waits)) {
    const SimTime finished = timeline.finished(rank, wait);
    if (finished <= latest) continue;
    latest = finished;
    last = wait.on == Wait::On::comm ? &steps.comm[static_cast<std::size_t>(wait.step)] : nullptr;
  }
  if (last == nullptr || last->message.value < 0) return std::nullopt;
  return last->message;
}

struct Kind {
  std::int64_t microbatch = -1;
  std::int64_t duration = -1;
};

class ActionWriter {
 public:
  ActionWriter(const Program& program, const Timeline& timeline)
      : program_(program), timeline_(timeline), tick_(tick_of(timeline.step)) {}

  void rank(RankId rank, const std::vector<std::size_t>& kept) {
    bytes_.put(kept.size());
    kinds_.assign(static_cast<std::size_t>(program_.layout.vp()) * 4, Kind{});
    stage_ = 0;
    free_since_ = 0;
    for (const std::size_t index : kept)
      action(rank, index);
  }

  std::string take() { return bytes_.take(); }

 private:
  void action(RankId rank, std::size_t index) {
    const Compute& compute = program_.ranks[rank.index()].compute[index].compute;
    const ComputeTimes& times = timeline_.ranks[rank.index()].compute[index];
    const std::int64_t start = std::max(free_since_, times.start.count() / tick_);
    const std::int64_t end = std::max(start, times.end.count() / tick_);
    const std::int64_t idle = start - free_since_;
    const std::int64_t exposed = std::min(idle, times.exposed.count() / tick_);
    const auto stage = program_.layout.virtual_stage_of(compute.chunk).index();
    const auto op = static_cast<std::uint64_t>(compute.op);
    Kind& kind = kinds_[stage * 4 + op];
    std::optional<MessageId> message;
    if (idle > 0) message = awaited_message(program_, timeline_, rank, index);

    std::uint64_t flags = op << 5;
    if (idle > 0) flags |= 1;
    if (compute.microbatch.value != kind.microbatch + 1) flags |= 2;
    if (end - start != kind.duration) flags |= 4;
    if (message) flags |= 8;
    if (exposed != (message ? idle : 0)) flags |= 16;
    if (stage != stage_) flags |= 128;
    bytes_.put(flags);
    if ((flags & 128) != 0) bytes_.put(stage);
    if ((flags & 1) != 0) bytes_.put(static_cast<std::uint64_t>(idle));
    if ((flags & 16) != 0) bytes_.put(static_cast<std::uint64_t>(exposed));
    if ((flags & 2) != 0) bytes_.put_signed(compute.microbatch.value - (kind.microbatch + 1));
    if ((flags & 4) != 0) bytes_.put(static_cast<std::uint64_t>(end - start));
    if (message) {
      const Message& what = program_.messages[message->index()];
      const bool backward = what.direction == Direction::backward;
      bytes_.put(what.transfer.index() * 2 + (backward ? 1 : 0));
      bytes_.put_signed(what.microbatch.value - compute.microbatch.value);
    }
    kind = {compute.microbatch.value, end - start};
    stage_ = stage;
    free_since_ = end;
  }

  const Program& program_;
  const Timeline& timeline_;
  std::int64_t tick_;
  ByteWriter bytes_;
  std::vector<Kind> kinds_;  // [stage * 4 + op]
  std::size_t stage_ = 0;
  std::int64_t free_since_ = 0;
};

class MessageWriter {
 public:
  MessageWriter(const Program& program, const Timeline& timeline)
      : program_(program),
        timeline_(timeline),
        tick_(tick_of(timeline.step)),
        kinds_(program.routing.transfers.size() * 2) {}

  void write(const std::vector<std::size_t>& kept) {
    bytes_.put(kept.size());
    for (const std::size_t message : kept)
      write_one(message);
  }

  std::string take() { return bytes_.take(); }

 private:
  struct Last {
    std::int64_t microbatch = -1;
    std::int64_t moving = -1;
    std::int64_t latency = -1;
  };

  void write_one(std::size_t index) {
    const Message& message = program_.messages[index];
    const MessageTimes& times = timeline_.messages[index];
    const auto ticks = [&](SimTime time) { return time.count() / tick_; };
    const std::int64_t start = ticks(times.start);
    const std::int64_t moving = ticks(times.sent) - start;
    const std::int64_t latency = ticks(times.arrived) - ticks(times.sent);
    const std::int64_t ready_before = std::max<std::int64_t>(0, start - ticks(times.send_ready));
    const std::int64_t posted_before = std::max<std::int64_t>(0, start - ticks(times.posted));
    const bool backward = message.direction == Direction::backward;
    Last& last = kinds_[message.transfer.index() * 2 + (backward ? 1 : 0)];
    std::uint64_t flags = backward ? 1 : 0;
    if (moving != last.moving) flags |= 2;
    if (latency != last.latency) flags |= 4;
    if (ready_before > 0) flags |= 8;
    if (posted_before > 0) flags |= 16;
    bytes_.put(flags);
    bytes_.put_signed(message.transfer.value - transfer_);
    bytes_.put_signed(message.microbatch.value - (last.microbatch + 1));
    bytes_.put_signed(start - start_);
    if ((flags & 2) != 0) bytes_.put_signed(moving);
    if ((flags & 4) != 0) bytes_.put_signed(latency);
    if ((flags & 8) != 0) bytes_.put(static_cast<std::uint64_t>(ready_before));
    if ((flags & 16) != 0) bytes_.put(static_cast<std::uint64_t>(posted_before));
    last = {message.microbatch.value, moving, latency};
    transfer_ = message.transfer.value;
    start_ = start;
  }

  const Program& program_;
  const Timeline& timeline_;
  std::int64_t tick_;
  ByteWriter bytes_;
  std::vector<Last> kinds_;  // [transfer * 2 + direction]
  std::int64_t transfer_ = 0;
  std::int64_t start_ = 0;
};

// The middle that must go so that about `kept` of the events stay: three fifths of them at the beginning.
LeftOut middle_of(std::vector<SimTime>& starts, std::size_t kept) {
  const auto nth = [&](std::size_t n) {
    std::nth_element(starts.begin(), starts.begin() + static_cast<std::ptrdiff_t>(n), starts.end());
    return starts[n];
  };
  const std::size_t head = kept * 3 / 5;
  return {nth(head), nth(starts.size() - (kept - head))};
}

// Encodes all events, or ever fewer until they fit. `encode` is given what to leave out, and counts what it keeps.
EventStream fitted(const std::function<std::vector<SimTime>()>& starts, std::size_t num_events, std::size_t most_events,
                   std::size_t most_bytes,
                   const std::function<std::string(const std::optional<LeftOut>&, std::size_t&)>& encode) {
  EventStream stream;
  stream.all = num_events;
  std::size_t kept = std::min(num_events, most_events);
  while (true) {
    stream.left_out.reset();
    if (kept < num_events) {
      std::vector<SimTime> all = starts();
      stream.left_out = middle_of(all, kept);
    }
    stream.kept = 0;
    stream.bytes = encode(stream.left_out, stream.kept);
    if (stream.bytes.size() <= most_bytes || kept < 16) return stream;
    kept = static_cast<std::size_t>(static_cast<double>(kept) * 0.95 * static_cast<double>(most_bytes) /
                                    static_cast<double>(stream.bytes.size()));
  }
}

bool is_kept(const std::optional<LeftOut>& gone, SimTime start, SimTime end) {
  return !gone || start < gone->from || end > gone->to;
}

}  // namespace

std::int64_t tick_of(SimTime step) { return step.count() <= largest_exact ? 1 : 1000; }

EventStream action_stream(const Program& program, const Timeline& timeline, const HtmlLimits& limits) {
  std::size_t all = 0;
  for (const RankTimeline& rank : timeline.ranks)
    all += rank.compute.size();
  const auto starts = [&] {
    std::vector<SimTime> times;
    times.reserve(all);
    for (const RankTimeline& rank : timeline.ranks) {
      for (const ComputeTimes& compute : rank.compute)
        times.push_back(compute.start);
    }
    return times;
  };
  return fitted(starts, all, limits.actions, limits.action_bytes,
                [&](const std::optional<LeftOut>& gone, std::size_t& num_kept) {
                  ActionWriter writer(program, timeline);
                  std::vector<std::size_t> kept;
                  for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
                    kept.clear();
                    const std::vector<ComputeTimes>& compute = timeline.ranks[r].compute;
                    for (std::size_t i = 0; i < compute.size(); ++i) {
                      if (is_kept(gone, compute[i].start, compute[i].end)) kept.push_back(i);
                    }
                    writer.rank(RankId(r), kept);
                    num_kept += kept.size();
                  }
                  return writer.take();
                });
}

EventStream message_stream(const Program& program, const Timeline& timeline, const HtmlLimits& limits) {
  const auto starts = [&] {
    std::vector<SimTime> times;
    times.reserve(timeline.messages.size());
    for (const MessageTimes& message : timeline.messages)
      times.push_back(message.start);
    return times;
  };
  return fitted(starts, timeline.messages.size(), limits.messages, limits.message_bytes,
                [&](const std::optional<LeftOut>& gone, std::size_t& num_kept) {
                  std::vector<std::size_t> kept;
                  for (std::size_t m = 0; m < timeline.messages.size(); ++m) {
                    if (is_kept(gone, timeline.messages[m].start, timeline.messages[m].arrived)) kept.push_back(m);
                  }
                  MessageWriter writer(program, timeline);
                  writer.write(kept);
                  num_kept = kept.size();
                  return writer.take();
                });
}

std::string transfer_stream(const Program& program) {
  ByteWriter bytes;
  bytes.put(program.routing.transfers.size());
  for (const Transfer& transfer : program.routing.transfers) {
    bytes.put(transfer.from_chunk.index());
    bytes.put(transfer.to_chunk.index());
    bytes.put(static_cast<std::uint64_t>(transfer.units()) * 2 + (transfer.lane == MessageLane::bulk ? 1 : 0));
  }
  return bytes.take();
}

std::string memory_stream(const HtmlMemory& memory, std::int64_t tick, const HtmlLimits& limits, bool& was_thinned) {
  ByteWriter bytes;
  const std::size_t num_classes = memory.classes.size();
  was_thinned = false;
  for (const HtmlMemorySeries& series : memory.ranks) {
    const std::size_t most = std::max<std::size_t>(64, limits.memory_points / memory.ranks.size());
    const std::size_t group = std::max<std::size_t>(1, (series.times.size() + most - 1) / most);
    was_thinned = was_thinned || group > 1;
    bytes.put((series.times.size() + group - 1) / group);
    std::int64_t at = 0;
    std::vector<std::int64_t> last(num_classes, 0);
    std::int64_t last_chunks = 0;
    for (std::size_t first = 0; first < series.times.size(); first += group) {
      std::size_t highest = first;
      std::int64_t most_bytes = -1;
      for (std::size_t i = first; i < std::min(first + group, series.times.size()); ++i) {
        std::int64_t sum = 0;
        for (std::size_t c = 0; c < num_classes; ++c)
          sum += series.bytes[i * num_classes + c];
        if (sum <= most_bytes) continue;
        most_bytes = sum;
        highest = i;
      }
      const std::int64_t here = series.times[highest].count() / tick;
      bytes.put(static_cast<std::uint64_t>(here - at));
      at = here;
      for (std::size_t c = 0; c < num_classes; ++c) {
        const std::int64_t now = series.bytes[highest * num_classes + c];
        bytes.put_signed(now - last[c]);
        last[c] = now;
      }
      const std::int64_t chunks = series.chunks.empty() ? 0 : series.chunks[highest];
      bytes.put_signed(chunks - last_chunks);
      last_chunks = chunks;
    }
  }
  return bytes.take();
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "html_events.hpp"

#include <algorithm>

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

struct Span {
  SimTime start{0};
  SimTime end{0};
};

// An event is its flags, then the fields that they announce. What is written is one list of events after the other,
// each list its length first.
class EventWriter {
 public:
  EventWriter(const Program& program, const Timeline& timeline)
      : program_(program), timeline_(timeline), tick_(tick_of(timeline.step)) {}

  std::string take() { return bytes_.take(); }

 protected:
  std::int64_t ticks(SimTime time) const { return time.count() / tick_; }

  void begin_list(std::size_t length) { bytes_.put(length); }
  void begin_event(std::uint64_t flags) {
    flags_ = flags;
    fields_.clear();
  }
  // A field that is there only with its flag; 0: always.
  void add(std::uint64_t flag, bool is_there, std::int64_t value) {
    if (!is_there) return;
    flags_ |= flag;
    fields_.put(static_cast<std::uint64_t>(value));
  }
  void add_signed(std::uint64_t flag, bool is_there, std::int64_t value) {
    if (!is_there) return;
    flags_ |= flag;
    fields_.put_signed(value);
  }
  void end_event() {
    bytes_.put(flags_);
    bytes_.append(fields_);
  }

  const Program& program_;
  const Timeline& timeline_;

 private:
  std::int64_t tick_;
  ByteWriter bytes_;
  ByteWriter fields_;
  std::uint64_t flags_ = 0;
};

// A list per rank.
class ActionWriter : public EventWriter {
 public:
  using EventWriter::EventWriter;

  std::size_t num_lists() const { return timeline_.ranks.size(); }
  std::size_t length_of(std::size_t rank) const { return timeline_.ranks[rank].compute.size(); }
  Span span_of(std::size_t rank, std::size_t index) const {
    const ComputeTimes& times = timeline_.ranks[rank].compute[index];
    return {times.start, times.end};
  }

  void write(std::size_t rank, const std::vector<std::size_t>& kept) {
    begin_list(kept.size());
    kinds_.assign(static_cast<std::size_t>(program_.layout.vp()) * 4, Last{});
    stage_ = 0;
    free_since_ = 0;
    for (const std::size_t index : kept)
      action(RankId(rank), index);
  }

 private:
  struct Last {
    std::int64_t microbatch = -1;
    std::int64_t duration = -1;
  };

  void action(RankId rank, std::size_t index) {
    const Compute& compute = program_.ranks[rank.index()].compute[index].compute;
    const ComputeTimes& times = timeline_.ranks[rank.index()].compute[index];
    const std::int64_t start = std::max(free_since_, ticks(times.start));
    const std::int64_t end = std::max(start, ticks(times.end));
    const std::int64_t idle = start - free_since_;
    const std::int64_t exposed = std::min(idle, ticks(times.exposed));
    const auto stage = program_.layout.virtual_stage_of(compute.chunk).index();
    const auto op = static_cast<std::uint64_t>(compute.op);
    Last& last = kinds_[stage * 4 + op];
    const std::int64_t unexpected = compute.microbatch.value - (last.microbatch + 1);
    std::optional<MessageId> message;
    if (idle > 0) message = awaited_message(program_, timeline_, rank, index);

    begin_event(op << 5);
    add(128, stage != stage_, static_cast<std::int64_t>(stage));
    add(1, idle > 0, idle);
    add(16, exposed != (message ? idle : 0), exposed);
    add_signed(2, unexpected != 0, unexpected);
    add(4, end - start != last.duration, end - start);
    if (message) {
      const Message& what = program_.messages[message->index()];
      const bool backward = what.direction == Direction::backward;
      add(8, true, std::int64_t{what.transfer.value} * 2 + (backward ? 1 : 0));
      add_signed(8, true, what.microbatch.value - compute.microbatch.value);
    }
    end_event();
    last = {compute.microbatch.value, end - start};
    stage_ = stage;
    free_since_ = end;
  }

  std::vector<Last> kinds_;  // [stage * 4 + op]
  std::size_t stage_ = 0;
  std::int64_t free_since_ = 0;
};

// One list.
class MessageWriter : public EventWriter {
 public:
  MessageWriter(const Program& program, const Timeline& timeline)
      : EventWriter(program, timeline), kinds_(program.routing.transfers.size() * 2) {}

  std::size_t num_lists() const { return 1; }
  std::size_t length_of(std::size_t) const { return timeline_.messages.size(); }
  Span span_of(std::size_t, std::size_t index) const {
    const MessageTimes& times = timeline_.messages[index];
    return {times.start, times.arrived};
  }

  void write(std::size_t, const std::vector<std::size_t>& kept) {
    begin_list(kept.size());
    for (const std::size_t index : kept)
      message(index);
  }

 private:
  struct Last {
    std::int64_t microbatch = -1;
    std::int64_t moving = -1;
    std::int64_t latency = -1;
  };

  void message(std::size_t index) {
    const Message& message = program_.messages[index];
    const MessageTimes& times = timeline_.messages[index];
    const std::int64_t start = ticks(times.start);
    const std::int64_t moving = ticks(times.sent) - start;
    const std::int64_t latency = ticks(times.arrived) - ticks(times.sent);
    const std::int64_t ready_before = std::max<std::int64_t>(0, start - ticks(times.send_ready));
    const std::int64_t posted_before = std::max<std::int64_t>(0, start - ticks(times.posted));
    const bool backward = message.direction == Direction::backward;
    Last& last = kinds_[message.transfer.index() * 2 + (backward ? 1 : 0)];

    begin_event(backward ? 1 : 0);
    add_signed(0, true, message.transfer.value - transfer_);
    add_signed(0, true, message.microbatch.value - (last.microbatch + 1));
    add_signed(0, true, start - start_);
    add_signed(2, moving != last.moving, moving);
    add_signed(4, latency != last.latency, latency);
    add(8, ready_before > 0, ready_before);
    add(16, posted_before > 0, posted_before);
    end_event();
    last = {message.microbatch.value, moving, latency};
    transfer_ = message.transfer.value;
    start_ = start;
  }

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

bool is_kept(const std::optional<LeftOut>& gone, const Span& span) {
  return !gone || span.start < gone->from || span.end > gone->to;
}

// Encodes all events, or ever fewer until they fit.
template <class Writer>
EventStream fitted(const Program& program, const Timeline& timeline, std::size_t most_events, std::size_t most_bytes) {
  EventStream stream;
  const Writer all(program, timeline);
  for (std::size_t list = 0; list < all.num_lists(); ++list)
    stream.all += all.length_of(list);
  std::size_t wanted = std::min(stream.all, most_events);
  while (true) {
    stream.left_out.reset();
    if (wanted < stream.all) {
      std::vector<SimTime> starts;
      starts.reserve(stream.all);
      for (std::size_t list = 0; list < all.num_lists(); ++list) {
        for (std::size_t i = 0; i < all.length_of(list); ++i)
          starts.push_back(all.span_of(list, i).start);
      }
      stream.left_out = middle_of(starts, wanted);
    }
    stream.kept = 0;
    Writer writer(program, timeline);
    std::vector<std::size_t> kept;
    for (std::size_t list = 0; list < all.num_lists(); ++list) {
      kept.clear();
      for (std::size_t i = 0; i < all.length_of(list); ++i) {
        if (is_kept(stream.left_out, all.span_of(list, i))) kept.push_back(i);
      }
      writer.write(list, kept);
      stream.kept += kept.size();
    }
    stream.bytes = writer.take();
    if (stream.bytes.size() <= most_bytes || wanted < 16) return stream;
    wanted = static_cast<std::size_t>(static_cast<double>(wanted) * 0.95 * static_cast<double>(most_bytes) /
                                      static_cast<double>(stream.bytes.size()));
  }
}

}  // namespace

std::int64_t tick_of(SimTime step) { return step.count() <= largest_exact ? 1 : 1000; }

EventStream action_stream(const Program& program, const Timeline& timeline, const HtmlLimits& limits) {
  return fitted<ActionWriter>(program, timeline, limits.actions, limits.action_bytes);
}

EventStream message_stream(const Program& program, const Timeline& timeline, const HtmlLimits& limits) {
  return fitted<MessageWriter>(program, timeline, limits.messages, limits.message_bytes);
}

std::string path_stream(const std::vector<PathPiece>& path, std::int64_t tick, const HtmlLimits& limits) {
  ByteWriter bytes;
  if (path.size() > limits.path_pieces) {
    bytes.put(0);
    return bytes.take();
  }
  bytes.put(path.size());
  std::int64_t at = 0;
  for (const PathPiece& piece : path) {
    const std::int64_t end = piece.end.count() / tick;
    bytes.put(static_cast<std::uint64_t>(piece.kind));
    bytes.put(piece.rank.index());
    if (is_message(piece.kind)) bytes.put(piece.to.index());
    bytes.put(static_cast<std::uint64_t>(end - at));
    at = end;
  }
  return bytes.take();
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

// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/trace.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "plumb/simulator/memory.hpp"
#include "trace_writer.hpp"

namespace plumb {
namespace {

// Messages of one direction on one rank, dealt to as few lanes as keep those on a lane apart. With a bandwidth and no
// latency one lane is enough, because a network end serves one message at a time.
class LanePool {
 public:
  std::int32_t place(SimTime start, SimTime end) {
    const auto free_lane = std::find_if(free_from_.begin(), free_from_.end(), [&](SimTime t) { return t <= start; });
    const auto lane = static_cast<std::int32_t>(free_lane - free_from_.begin());
    if (free_lane == free_from_.end()) {
      free_from_.push_back(end);
    } else {
      *free_lane = end;
    }
    return lane;
  }
  std::int32_t num_lanes() const { return static_cast<std::int32_t>(free_from_.size()); }

 private:
  std::vector<SimTime> free_from_;
};

class Tracer {
 public:
  Tracer(std::ostream& out, const Program& program, const CostModel& costs, const Timeline& timeline,
         const TraceOptions& options)
      : writer_(out),
        program_(program),
        costs_(costs),
        timeline_(timeline),
        options_(options),
        is_shown_(program.ranks.size(), options.ranks.empty()) {
    for (const RankId rank : options.ranks) {
      if (rank.value < 0 || rank.index() >= program.ranks.size()) {
        throw InputError(fmt::format("the trace is to show rank {}: the program has ranks 0..{}", rank.value,
                                     program.ranks.size() - 1));
      }
      is_shown_[rank.index()] = true;
    }
  }

  void write() {
    const Layout& layout = program_.layout;
    writer_.begin({{"tool", "plumb sim"},
                   {"layout", fmt::format("P={} V={} M={} {}", layout.pp(), layout.vp(), layout.microbatches(),
                                          to_string(layout.placement()))},
                   {"schedule", program_.schedule_name},
                   {"cache", std::string(to_string(program_.routing.policy))},
                   {"step_us", fmt::format("{:.3f}", to_us(timeline_.step))}});
    place_messages();
    name_tracks();
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      if (is_shown_[r]) write_computes(RankId(r));
    }
    for (const MessageId message : by_start_) {
      write_message(message);
    }
    for (std::size_t r = 0; r < program_.ranks.size() && options_.memory; ++r) {
      if (!is_shown_[r]) continue;
      write_memory(RankId(r));
      if (options_.device) write_device(RankId(r));
    }
    writer_.end();
  }

 private:
  static std::int64_t process(RankId rank) { return rank.value + 1; }

  bool is_inside(SimTime start, SimTime end) const {
    return end >= options_.from && (!options_.to || start <= *options_.to);
  }

  void place_messages() {
    by_start_.resize(timeline_.messages.size());
    for (std::size_t m = 0; m < by_start_.size(); ++m) {
      by_start_[m] = MessageId(m);
    }
    std::stable_sort(by_start_.begin(), by_start_.end(), [&](MessageId a, MessageId b) {
      return timeline_.messages[a.index()].start < timeline_.messages[b.index()].start;
    });
    send_lane_.resize(by_start_.size());
    receive_lane_.resize(by_start_.size());
    std::vector<LanePool> sending(program_.ranks.size());
    std::vector<LanePool> receiving(program_.ranks.size());
    for (const MessageId message : by_start_) {
      const MessageTimes& times = timeline_.messages[message.index()];
      send_lane_[message.index()] = sending[program_.sender(message).index()].place(times.start, times.arrived);
      receive_lane_[message.index()] = receiving[program_.receiver(message).index()].place(times.start, times.arrived);
    }
    // Thread ids: unique over all ranks, never 0 and never equal to a process id.
    std::int64_t next = static_cast<std::int64_t>(program_.ranks.size()) + 1;
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      num_sending_.push_back(sending[r].num_lanes());
      num_receiving_.push_back(receiving[r].num_lanes());
      first_thread_.push_back(next);
      next += 1 + num_sending_[r] + num_receiving_[r];
    }
  }

  TraceWriter::Track compute_track(RankId rank) const { return {process(rank), first_thread_[rank.index()]}; }
  TraceWriter::Track send_track(RankId rank, std::int32_t lane) const {
    return {process(rank), first_thread_[rank.index()] + 1 + lane};
  }
  TraceWriter::Track receive_track(RankId rank, std::int32_t lane) const {
    return {process(rank), first_thread_[rank.index()] + 1 + num_sending_[rank.index()] + lane};
  }

  void name_tracks() {
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      const RankId rank(r);
      if (!is_shown_[r]) continue;
      std::int64_t row = 0;
      writer_.name_process(process(rank), fmt::format("rank {}", r), rank.value);
      writer_.name_thread(compute_track(rank), "compute", row++);
      for (std::int32_t lane = 0; lane < num_sending_[r]; ++lane) {
        writer_.name_thread(send_track(rank, lane), fmt::format("send lane {}", lane), row++);
      }
      for (std::int32_t lane = 0; lane < num_receiving_[r]; ++lane) {
        writer_.name_thread(receive_track(rank, lane), fmt::format("receive lane {}", lane), row++);
      }
    }
  }

  void write_computes(RankId rank) {
    const std::vector<ComputeTimes>& all_times = timeline_.ranks[rank.index()].compute;
    for (std::size_t i = 0; i < all_times.size(); ++i) {
      const ComputeTimes& times = all_times[i];
      const Compute& compute = program_.ranks[rank.index()].compute[i].compute;
      const SimTime wait_from = times.start - times.exposed;
      if (times.exposed.count() > 0 && is_inside(wait_from, times.start)) {
        writer_.slice(compute_track(rank), wait_from, times.start, "wait", "wait",
                      fmt::format("\"for\":\"{}\"", to_string(compute)));
      }
      if (!is_inside(times.start, times.end)) continue;
      const char name = letter(compute.op);
      writer_.slice(compute_track(rank), times.start, times.end, {&name, 1}, "compute",
                    fmt::format("\"mb\":{},\"vs\":{},\"chunk\":{}", compute.microbatch.value,
                                program_.layout.virtual_stage_of(compute.chunk).value, compute.chunk.value));
    }
  }

  void write_message(MessageId message) {
    const MessageTimes& times = timeline_.messages[message.index()];
    const RankId from = program_.sender(message);
    const RankId to = program_.receiver(message);
    const bool from_shown = is_shown_[from.index()];
    const bool to_shown = is_shown_[to.index()];
    if (!is_inside(times.start, times.arrived) || (!from_shown && !to_shown)) return;
    const Transfer& transfer = program_.transfer_of(message);
    const Message& what = program_.messages[message.index()];
    const bool forward = what.direction == Direction::forward;
    const UnitBytes& unit = costs_.bytes();
    const std::string args = fmt::format(
        "\"mb\":{},\"from_chunk\":{},\"to_chunk\":{},\"lane\":\"{}\",\"units\":{},\"bytes\":{},\"queued_us\":{:.3f},"
        "\"peer\":",
        what.microbatch.value, (forward ? transfer.from_chunk : transfer.to_chunk).value,
        (forward ? transfer.to_chunk : transfer.from_chunk).value,
        transfer.lane == MessageLane::urgent ? "urgent" : "bulk", times.units,
        times.units * (forward ? unit.value : unit.gradient_wire),
        to_us(times.start - std::max(times.send_ready, times.posted)));
    const std::int64_t flow_id = message.value + std::int64_t{1};
    const auto write_end = [&](TraceWriter::Track track, std::string_view name, RankId peer, TraceWriter::FlowEnd end) {
      std::optional<TraceWriter::Flow> flow;
      if (from_shown && to_shown) flow = TraceWriter::Flow{flow_id, end};
      writer_.slice(track, times.start, times.arrived, name, "p2p", fmt::format("{}{}", args, peer.value), flow);
    };
    // The sender first: at equal times the order in the file decides, and an arrow must start before it ends.
    if (from_shown) {
      write_end(send_track(from, send_lane_[message.index()]), forward ? "send F" : "send B", to,
                TraceWriter::FlowEnd::out);
    }
    if (to_shown) {
      write_end(receive_track(to, receive_lane_[message.index()]), forward ? "recv F" : "recv B", from,
                TraceWriter::FlowEnd::in);
    }
  }

  void write_memory(RankId rank) {
    constexpr double mebibyte = 1 << 20;
    const UnitBytes& unit = costs_.bytes();
    Resident before{-1, -1, -1, -1, -1};
    for (const MemoryPoint& point : memory_curve(program_, timeline_, rank)) {
      if (!is_inside(point.at, point.at)) continue;
      const Resident& now = point.resident;
      if (now.value_slots() != before.value_slots() || now.gradient_slots() != before.gradient_slots() ||
          now.block_units != before.block_units || now.gradient_units != before.gradient_units) {
        writer_.counter(
            process(rank), point.at, "resident units",
            fmt::format("\"blocks\":{},\"partials\":{},\"gradients\":{},\"passing gradients\":{}", now.block_units,
                        now.partial_units, now.gradient_units, now.passing_gradient_units));
        writer_.counter(process(rank), point.at, "resident MiB",
                        fmt::format("\"values\":{:.3f},\"gradients\":{:.3f}",
                                    static_cast<double>(now.value_slots() * unit.value) / mebibyte,
                                    static_cast<double>(now.gradient_slots() * unit.gradient_slot) / mebibyte));
      }
      if (now.activation_chunks != before.activation_chunks) {
        writer_.counter(process(rank), point.at, "activations", fmt::format("\"chunks\":{}", now.activation_chunks));
      }
      before = now;
    }
  }

  // A track per class, so that one shows only what changes; what is there all the time stands in the first event.
  void write_device(RankId rank) {
    constexpr double mebibyte = 1 << 20;
    std::optional<MemoryBytes> before;
    for (const MemoryBytesPoint& point : memory_by_class(program_, timeline_, rank, *options_.device)) {
      if (!is_inside(point.at, point.at)) continue;
      std::string args;
      for (std::size_t c = 0; c < num_memory_classes; ++c) {
        const auto what = static_cast<MemoryClass>(c);
        if (before ? point.bytes[what] == (*before)[what] : point.bytes[what] == 0) continue;
        args += fmt::format("{}\"{}\":{:.3f}", args.empty() ? "" : ",", to_string(what),
                            static_cast<double>(point.bytes[what]) / mebibyte);
      }
      if (!args.empty()) writer_.counter(process(rank), point.at, "device MiB", args);
      before = point.bytes;
    }
  }

  TraceWriter writer_;
  const Program& program_;
  const CostModel& costs_;
  const Timeline& timeline_;
  const TraceOptions& options_;
  std::vector<bool> is_shown_;
  std::vector<MessageId> by_start_;
  std::vector<std::int32_t> send_lane_;     // [message]
  std::vector<std::int32_t> receive_lane_;  // [message]
  std::vector<std::int32_t> num_sending_;   // [rank]
  std::vector<std::int32_t> num_receiving_;
  std::vector<std::int64_t> first_thread_;
};

}  // namespace

void write_trace(std::ostream& out, const Program& program, const CostModel& costs, const Timeline& timeline,
                 const TraceOptions& options) {
  Tracer(out, program, costs, timeline, options).write();
}

}  // namespace plumb

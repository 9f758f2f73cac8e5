// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <istream>
#include <map>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "names.hpp"
#include "plumb/cache/encode.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/json_text.hpp"
#include "plumb/simulator/against.hpp"
#include "plumb/simulator/exposure.hpp"

namespace plumb {
namespace {

using Json = nlohmann::json;

class LogReader {
 public:
  LogReader(std::istream& in, std::string_view name, const Program& program)
      : in_(in), name_(name), program_(program) {}

  MeasuredLog read() {
    read_header();
    while (const std::optional<Json> line = next_line()) {
      if (!line->contains("step") || !line->contains("rank")) continue;  // a line of another kind: see the format
      if (line->contains("compute")) {
        read_compute(*line);
      } else if (line->contains("comm")) {
        read_message(*line);
      } else {
        read_rank(*line);
      }
    }
    return finish();
  }

 private:
  struct Step {
    Timeline timeline;
    std::vector<bool> ranks;                  // seen
    std::vector<std::vector<bool>> computes;  // [rank] seen
    std::vector<std::vector<bool>> ends;      // [rank] of messages, like RankProgram::comm: seen
    std::size_t num_computes = 0;
    std::size_t num_ends = 0;
    std::size_t num_ranks = 0;
  };

  void see(std::vector<bool>& seen, std::size_t index, std::size_t& count) const {
    if (seen[index]) refuse("the second line of the same thing in the same step");
    seen[index] = true;
    ++count;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw InputError(fmt::format("{}: line {}: {}", name_, line_number_, why));
  }

  std::optional<Json> next_line() {
    std::string text;
    if (!std::getline(in_, text)) return std::nullopt;
    ++line_number_;
    if (in_.eof()) refuse("the log ends in the middle of this line: it was cut off, or the run is still writing it");
    require_plain_json(text, fmt::format("{}: line {}", name_, line_number_));
    Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (line.is_object()) return line;
    refuse("this is no JSON object");
  }

  void read_header() {
    const std::optional<Json> header = next_line();
    if (!header) throw InputError(fmt::format("{}: the file is empty", name_));
    if (header->value("plumb_log", Json()) != 1) {
      refuse("not an event log: its first line has no \"plumb_log\":1");
    }
    log_.made_by = word(*header, "made_by");
    const std::string logged = word(*header, "program");
    const std::string mine = to_string(digest(program_));
    if (logged == mine) {
      require_same(*header, "schedule", program_.schedule_name);
      require_same(*header, "cache", to_string(program_.routing.policy));
      require_same(*header, "pp", program_.layout.pp());
      require_same(*header, "vp", program_.layout.vp());
      require_same(*header, "microbatches", program_.layout.microbatches());
      return;
    }
    throw InputError(fmt::format(
        "{}: a log of another program: {} with {} on {} ranks x {} virtual stages, {} microbatches (digest {}), "
        "not {} with {} on {} x {}, {} (digest {}); layout, policy and costs must be those of the run",
        name_, shown(*header, "schedule"), shown(*header, "cache"), shown(*header, "pp"), shown(*header, "vp"),
        shown(*header, "microbatches"), logged, program_.schedule_name, to_string(program_.routing.policy),
        program_.layout.pp(), program_.layout.vp(), program_.layout.microbatches(), mine));
  }

  std::string word(const Json& header, const char* field) const {
    const auto found = header.find(field);
    if (found == header.end() || !found->is_string()) refuse(fmt::format("\"{}\" is no text", field));
    return found->get<std::string>();
  }
  static std::string shown(const Json& header, const char* field) {
    const auto found = header.find(field);
    if (found == header.end()) return "?";
    return shortened(found->is_string() ? found->get<std::string>() : found->dump());
  }

  std::int64_t integer(const Json& line, const char* field, std::int64_t end) const {
    const auto found = line.find(field);
    if (found == line.end() || !found->is_number_integer() || *found < 0 || *found >= end) {
      refuse(fmt::format("\"{}\" is not an integer from 0 to {}", field, end - 1));
    }
    return found->get<std::int64_t>();
  }

  // The time at which something ended that had begun at `before`.
  SimTime time_after(SimTime before, const Json& line, const char* field) const {
    const SimTime at = time(line, field);
    if (at < before) refuse(fmt::format("\"{}\" is before the beginning", field));
    return at;
  }

  SimTime time(const Json& line, const char* field) const {
    const auto found = line.find(field);
    if (found == line.end() || !found->is_number()) refuse(fmt::format("\"{}\" is not a time", field));
    const double us = found->get<double>();
    if (!(std::abs(us) <= 1e12)) refuse(fmt::format("\"{}\" is out of range", field));
    return SimTime(std::llround(us * 1e6));
  }

  std::optional<SimTime> time_if_any(const Json& line, const char* field) const {
    const auto found = line.find(field);
    if (found == line.end() || found->is_null()) return std::nullopt;
    return time(line, field);
  }

  // What a line says of the program beside its place must be what stands there; it need not say it.
  template <class Value>
  void require_same(const Json& line, const char* field, const Value& expected) const {
    const auto found = line.find(field);
    if (found == line.end() || *found == Json(expected)) return;
    refuse(
        fmt::format("\"{}\" is {}, in the program it is {}", field, shortened(found->dump()), Json(expected).dump()));
  }
  static std::string shortened(std::string text) {
    constexpr std::size_t most = 40;
    if (text.size() > most) text.replace(most, std::string::npos, "..");
    return text;
  }

  Step& step_of(const Json& line) {
    const std::int64_t number = integer(line, "step", std::int64_t{1} << 62);
    auto [found, is_new] = steps_.try_emplace(number);
    if (is_new) {
      found->second.timeline.messages.resize(program_.messages.size());
      found->second.ranks.resize(program_.ranks.size());
      for (const RankProgram& rank : program_.ranks) {
        found->second.timeline.ranks.push_back(
            {std::vector<ComputeTimes>(rank.compute.size()), std::vector<SimTime>(rank.comm.size())});
        found->second.computes.emplace_back(rank.compute.size());
        found->second.ends.emplace_back(rank.comm.size());
      }
    }
    return found->second;
  }

  std::size_t rank_of(const Json& line) const {
    return static_cast<std::size_t>(integer(line, "rank", static_cast<std::int64_t>(program_.ranks.size())));
  }

  void read_rank(const Json& line) {
    Step& step = step_of(line);
    see(step.ranks, rank_of(line), step.num_ranks);
    step.timeline.step = std::max(step.timeline.step, time_after(time(line, "start_us"), line, "end_us"));
  }

  void read_compute(const Json& line) {
    Step& step = step_of(line);
    const std::size_t rank = rank_of(line);
    std::vector<ComputeTimes>& all = step.timeline.ranks[rank].compute;
    const auto index = static_cast<std::size_t>(integer(line, "compute", static_cast<std::int64_t>(all.size())));
    require_same(line, "action", to_string(program_.ranks[rank].compute[index].compute));
    see(step.computes[rank], index, step.num_computes);
    all[index].start = time(line, "start_us");
    all[index].end = time_after(all[index].start, line, "end_us");
  }

  void read_message(const Json& line) {
    Step& step = step_of(line);
    const std::size_t rank = rank_of(line);
    const std::vector<CommStep>& all = program_.ranks[rank].comm;
    const auto index = static_cast<std::size_t>(integer(line, "comm", static_cast<std::int64_t>(all.size())));
    if (all[index].kind != CommKind::send && all[index].kind != CommKind::receive) {
      refuse(fmt::format("communication step {} of rank {} is no message", index, rank));
    }
    const bool sends = all[index].kind == CommKind::send;
    require_same(line, "action", message_name(program_, all[index].message, sends));
    require_same(line, "message", all[index].message.value);
    require_same(line, "peer", all[index].peer.value);
    require_same(line, "units", all[index].segments.size());
    see(step.ends[rank], index, step.num_ends);
    MessageTimes& message = step.timeline.messages[all[index].message.index()];
    const SimTime posted = time(line, "posted_us");
    (sends ? message.send_ready : message.posted) = posted;
    const SimTime finished = time_after(posted, line, "finished_us");
    (sends ? message.sent : message.arrived) = finished;
    step.timeline.ranks[rank].comm_done[index] = finished;
    if (const auto started = time_if_any(line, "started_us")) {
      if (*started > finished) refuse("\"started_us\" is after the end");
      message.start = *started;
    }
    if (const auto consumed = time_if_any(line, "consumed_us"); consumed && *consumed < finished) {
      refuse("\"consumed_us\" is before the end");
    }
  }

  MeasuredLog finish() {
    std::size_t num_computes = 0;
    for (const RankProgram& rank : program_.ranks)
      num_computes += rank.compute.size();
    for (auto& [number, step] : steps_) {
      if (step.num_computes != num_computes || step.num_ends != 2 * program_.messages.size() ||
          step.num_ranks != program_.ranks.size()) {
        throw InputError(
            fmt::format("{}: step {} is not complete: {} of {} actions, {} of {} ends of messages, {} of {} "
                        "ranks",
                        name_, number, step.num_computes, num_computes, step.num_ends, 2 * program_.messages.size(),
                        step.num_ranks, program_.ranks.size()));
      }
      for (MessageTimes& message : step.timeline.messages)
        message.start = std::max({message.start, message.send_ready, message.posted});
      complete_measured(program_, step.timeline);
      log_.numbers.push_back(number);
      log_.steps.push_back(std::move(step.timeline));
    }
    if (log_.steps.empty()) throw InputError(fmt::format("{}: the log has no steps", name_));
    return std::move(log_);
  }

  std::istream& in_;
  std::string_view name_;
  const Program& program_;
  std::size_t line_number_ = 0;
  std::map<std::int64_t, Step> steps_;
  MeasuredLog log_;
};

}  // namespace

MeasuredLog read_event_log(std::istream& in, std::string_view name, const Program& program) {
  return LogReader(in, name, program).read();
}

std::size_t median_step(const MeasuredLog& log) {
  std::vector<std::size_t> order(log.steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return log.steps[a].step < log.steps[b].step; });
  return order[order.size() / 2];
}

}  // namespace plumb

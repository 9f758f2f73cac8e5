// SPDX-License-Identifier: Apache-2.0
#include "trace_rules.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

namespace plumb::test {
namespace {

using Json = nlohmann::json;

class RuleChecker {
 public:
  TraceFindings check(std::string_view text, std::size_t max_bytes) {
    if (text.size() > max_bytes) fault("the file is larger than a browser opens");
    check_text(text);
    const Json trace = Json::parse(text, nullptr, false);
    if (trace.is_discarded()) {
      fault("the file is not JSON");
      return std::move(findings_);
    }
    if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) {
      fault("there is no array traceEvents");
      return std::move(findings_);
    }
    check_metadata(trace);
    for (const Json& event : trace["traceEvents"])
      check_event(event);
    check_names();
    check_nesting();
    check_flows();
    return std::move(findings_);
  }

 private:
  struct Slice {
    std::int64_t start = 0;  // ns
    std::int64_t end = 0;
    std::int64_t place = 0;  // in the file
  };
  struct Flow {
    std::vector<Slice> out;
    std::vector<Slice> in;
  };

  void fault(std::string text) { findings_.faults.push_back(std::move(text)); }

  // What only the raw text shows.
  void check_text(std::string_view text) {
    if (text.substr(0, 2) != "{\"" && text.substr(0, 3) != "[{\"") fault("the file does not begin like a trace");
    for (const char c : text) {
      if (static_cast<unsigned char>(c) < 0x20 && c != '\n') {
        fault("a control character is not escaped");
        break;
      }
    }
    for (const std::string_view key : {"\"ts\":", "\"dur\":"}) {
      for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
        if (!has_three_decimals(text.substr(at + key.size()))) {
          fault("a time is not written with three decimals");
          return;
        }
      }
    }
  }

  static bool has_three_decimals(std::string_view number) {
    std::size_t i = 0;
    const auto digits = [&] {
      const std::size_t first = i;
      while (i < number.size() && std::isdigit(static_cast<unsigned char>(number[i])) != 0)
        ++i;
      return i - first;
    };
    if (digits() == 0 || i >= number.size() || number[i++] != '.') return false;
    return digits() == 3 && i < number.size() && (number[i] == ',' || number[i] == '}');
  }

  void check_metadata(const Json& trace) {
    for (const auto& item : trace.items()) {
      if (item.key() != "metadata" && item.key() != "traceEvents") fault("unknown key " + item.key());
    }
    if (!trace.contains("metadata") || !trace["metadata"].is_object()) fault("there is no metadata");
  }

  void check_event(const Json& event) {
    ++place_;
    const std::string phase = event.value("ph", "");
    if (phase != "X" && phase != "C" && phase != "M") {
      fault("phase '" + phase + "' is not one we write");
      return;
    }
    if (!event.contains("pid") || !event["pid"].is_number_integer() || event["pid"] < 1) {
      fault("a process id is not an integer above 0");
      return;
    }
    if (event.contains("cname")) fault("colours are ignored");
    if (phase != "M" && event.value("name", "").empty()) fault("an event has no name");
    const std::int64_t process = event["pid"];
    if (event.contains("tid") && !check_thread(event, process)) return;
    if (phase == "M") {
      check_name_event(event, process);
      return;
    }
    if (!event.contains("ts") || !event["ts"].is_number() || event["ts"] < 0) {
      fault("an event has no time");
      return;
    }
    named_by_events_.insert(process);
    phase == "X" ? check_slice(event) : check_counter(event);
  }

  bool check_thread(const Json& event, std::int64_t process) {
    if (!event["tid"].is_number_integer() || event["tid"] < 1) {
      fault("a thread id is not an integer above 0");
      return false;
    }
    const auto [known, is_new] = process_of_.try_emplace(event["tid"], process);
    if (!is_new && known->second != process) fault("a thread id belongs to two processes");
    return true;
  }

  void check_name_event(const Json& event, std::int64_t process) {
    const std::string name = event.value("name", "");
    const Json args = event.value("args", Json::object());
    if (name == "process_name" && args.contains("name") && args["name"].is_string()) {
      named_processes_.insert(process);
      if (args["name"] != "rank " + std::to_string(process - 1)) fault("a process id is not the rank plus 1");
    } else if (name == "thread_name" && args.contains("name") && args["name"].is_string() && event.contains("tid")) {
      named_threads_.insert(event["tid"].get<std::int64_t>());
    } else if ((name != "process_sort_index" && name != "thread_sort_index") || !args.contains("sort_index") ||
               !args["sort_index"].is_number_integer()) {
      fault("metadata event '" + name + "' is not read");
    }
  }

  void check_slice(const Json& event) {
    ++findings_.num_slices;
    if (!event.contains("dur") || !event["dur"].is_number() || event["dur"] < 0) {
      fault("a slice has no duration");
      return;
    }
    if (!event.contains("tid")) {
      fault("a slice has no thread");
      return;
    }
    const std::int64_t start = nanoseconds(event["ts"]);
    const Slice slice{start, start + nanoseconds(event["dur"]), place_};
    slices_[event["tid"].get<std::int64_t>()].push_back(slice);
    slice_names_.insert(event.value("name", ""));
    const bool leaves = event.contains("flow_out");
    const bool comes = event.contains("flow_in");
    for (const char* end : {"flow_out", "flow_in"}) {
      if (event.contains(end) && event[end] != true) fault("the end of an arrow is not true");
    }
    if (!event.contains("bind_id")) {
      if (leaves || comes) fault("an arrow has no bind_id");
      return;
    }
    if (!event["bind_id"].is_number_integer() || event["bind_id"] < 1) {
      fault("a bind_id is not an integer above 0");
      return;
    }
    if (leaves == comes) fault("a slice with a bind_id is not one end of an arrow");
    Flow& flow = flows_[event["bind_id"].get<std::int64_t>()];
    (leaves ? flow.out : flow.in).push_back(slice);
  }

  void check_counter(const Json& event) {
    ++findings_.num_counters;
    if (event.contains("tid")) fault("a counter belongs to a process, not to a thread");
    const Json args = event.value("args", Json::object());
    if (args.empty()) fault("a counter has no value");
    for (const auto& item : args.items()) {
      if (!item.value().is_number()) fault("a counter's value is not a number");
    }
  }

  void check_names() {
    for (const std::int64_t process : named_by_events_) {
      if (!named_processes_.contains(process)) fault("a process has no name");
    }
    for (const auto& [thread, slices] : slices_) {
      if (!named_threads_.contains(thread)) fault("a thread has no name");
      if (process_of_.contains(thread) && named_processes_.contains(thread)) fault("a thread id equals a process id");
    }
    if (slice_names_.size() > 12) fault("the names of slices are not categories");
  }

  // Slices of one thread, in time and then in file order, must nest.
  void check_nesting() {
    for (auto& [thread, slices] : slices_) {
      std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) { return a.start < b.start; });
      std::vector<Slice> open;
      for (const Slice& slice : slices) {
        while (!open.empty() && open.back().end <= slice.start)
          open.pop_back();
        if (!open.empty() && slice.end > open.back().end) {
          fault("slices on thread " + std::to_string(thread) + " overlap without nesting");
          return;
        }
        open.push_back(slice);
      }
    }
  }

  void check_flows() {
    findings_.num_flows = static_cast<int>(flows_.size());
    for (const auto& [id, flow] : flows_) {
      if (flow.out.size() != 1 || flow.in.size() != 1) {
        fault("arrow " + std::to_string(id) + " has not one start and one end");
        continue;
      }
      const Slice& from = flow.out.front();
      const Slice& to = flow.in.front();
      if (to.start < from.start || (to.start == from.start && to.place < from.place)) {
        fault("arrow " + std::to_string(id) + " ends before it starts");
      }
    }
  }

  static std::int64_t nanoseconds(const Json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

  TraceFindings findings_;
  std::int64_t place_ = 0;
  std::map<std::int64_t, std::int64_t> process_of_;  // [thread]
  std::map<std::int64_t, std::vector<Slice>> slices_;
  std::map<std::int64_t, Flow> flows_;
  std::set<std::int64_t> named_by_events_;
  std::set<std::int64_t> named_processes_;
  std::set<std::int64_t> named_threads_;
  std::set<std::string> slice_names_;
};

}  // namespace

TraceFindings check_trace(std::string_view text, std::size_t max_bytes) { return RuleChecker().check(text, max_bytes); }

}  // namespace plumb::test

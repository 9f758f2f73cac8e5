// SPDX-License-Identifier: Apache-2.0
#include "trace_writer.hpp"

#include <ostream>

#include <fmt/compile.h>

namespace plumb {
namespace {

constexpr std::size_t flush_at_bytes = 1 << 16;

// Both ends of a slice are rounded down to a nanosecond, never its length: neighbours then stay neighbours.
std::int64_t nanoseconds(SimTime time) { return time.count() / 1000; }

template <class Out>
void write_us(Out&& out, std::int64_t ns) {
  fmt::format_to(out, FMT_COMPILE("{}.{:03}"), ns / 1000, ns % 1000);
}

}  // namespace

std::string json_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      escaped += '\\';
      escaped += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      escaped += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      escaped += c;
    }
  }
  return escaped;
}

void TraceWriter::begin(std::initializer_list<std::pair<std::string_view, std::string>> metadata) {
  const auto out = fmt::appender(buffer_);
  fmt::format_to(out, "{{\"metadata\":{{");
  bool first = true;
  for (const auto& [key, value] : metadata) {
    fmt::format_to(out, "{}\"{}\":\"{}\"", first ? "" : ",", key, json_escaped(value));
    first = false;
  }
  fmt::format_to(out, "}},\"traceEvents\":[");
}

void TraceWriter::end() {
  fmt::format_to(fmt::appender(buffer_), "\n]}}\n");
  flush();
}

void TraceWriter::name_process(std::int64_t process, std::string_view name, std::int64_t sort_index) {
  metadata(process, "", "process_name", fmt::format("\"name\":\"{}\"", json_escaped(name)));
  metadata(process, "", "process_sort_index", fmt::format("\"sort_index\":{}", sort_index));
}

void TraceWriter::name_thread(Track track, std::string_view name, std::int64_t sort_index) {
  const std::string thread = fmt::format("\"tid\":{},", track.thread);
  metadata(track.process, thread, "thread_name", fmt::format("\"name\":\"{}\"", json_escaped(name)));
  metadata(track.process, thread, "thread_sort_index", fmt::format("\"sort_index\":{}", sort_index));
}

void TraceWriter::slice(Track track, SimTime start, SimTime end, std::string_view name, std::string_view category,
                        std::string_view args, std::optional<Flow> flow) {
  open_event();
  const auto out = fmt::appender(buffer_);
  fmt::format_to(out, FMT_COMPILE("{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":"), track.process, track.thread);
  write_us(out, nanoseconds(start));
  fmt::format_to(out, FMT_COMPILE(",\"dur\":"));
  write_us(out, nanoseconds(end) - nanoseconds(start));
  fmt::format_to(out, FMT_COMPILE(",\"name\":\"{}\",\"cat\":\"{}\""), name, category);
  if (flow) {
    fmt::format_to(out, FMT_COMPILE(",\"bind_id\":{},\"flow_{}\":true"), flow->id,
                   flow->end == FlowEnd::out ? "out" : "in");
  }
  fmt::format_to(out, FMT_COMPILE(",\"args\":{{{}}}}}"), args);
}

void TraceWriter::counter(std::int64_t process, SimTime at, std::string_view name, std::string_view args) {
  open_event();
  const auto out = fmt::appender(buffer_);
  fmt::format_to(out, FMT_COMPILE("{{\"ph\":\"C\",\"pid\":{},\"ts\":"), process);
  write_us(out, nanoseconds(at));
  fmt::format_to(out, FMT_COMPILE(",\"name\":\"{}\",\"args\":{{{}}}}}"), name, args);
}

void TraceWriter::metadata(std::int64_t process, std::string_view thread, std::string_view kind,
                           std::string_view args) {
  open_event();
  fmt::format_to(fmt::appender(buffer_), "{{\"ph\":\"M\",\"pid\":{},{}\"name\":\"{}\",\"args\":{{{}}}}}", process,
                 thread, kind, args);
}

void TraceWriter::open_event() {
  if (buffer_.size() >= flush_at_bytes) flush();
  const std::string_view separator = is_first_ ? "\n" : ",\n";
  is_first_ = false;
  buffer_.append(separator.data(), separator.data() + separator.size());
}

void TraceWriter::flush() {
  out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  buffer_.clear();
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// trace_writer.hpp: Chrome-trace events as text, one per line, through a buffer.
//
// Knows the format only: object form, microseconds with three decimals, process and thread names as metadata, new-style
// flows by bind_id. The caller keeps slices on one track from overlapping and writes a flow's sender before its
// receiver.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "plumb/simulator/sim_time.hpp"

namespace plumb {

// Quotes, backslashes and control characters as JSON wants them; without the enclosing quotes.
std::string json_escaped(std::string_view text);

class TraceWriter {
 public:
  enum class FlowEnd : std::uint8_t { out, in };
  struct Flow {
    std::int64_t id = 0;  // not 0
    FlowEnd end = FlowEnd::out;
  };
  struct Track {
    std::int64_t process = 0;  // neither is 0
    std::int64_t thread = 0;
  };

  explicit TraceWriter(std::ostream& out) : out_(out) {}

  void begin(std::initializer_list<std::pair<std::string_view, std::string>> metadata);
  void end();

  void name_process(std::int64_t process, std::string_view name, std::int64_t sort_index);
  void name_thread(Track track, std::string_view name, std::int64_t sort_index);
  // `args`: the inside of a JSON object. `name` and `category` are literals of ours and written as they are.
  void slice(Track track, SimTime start, SimTime end, std::string_view name, std::string_view category,
             std::string_view args, std::optional<Flow> flow = std::nullopt);
  void counter(std::int64_t process, SimTime at, std::string_view name, std::string_view args);

 private:
  void open_event();
  void metadata(std::int64_t process, std::string_view thread, std::string_view kind, std::string_view args);
  void flush();

  std::ostream& out_;
  fmt::memory_buffer buffer_;
  bool is_first_ = true;
};

}  // namespace plumb

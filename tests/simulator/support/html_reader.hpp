// SPDX-License-Identifier: Apache-2.0
//
// html_reader.hpp (tests): takes a page apart again, as its own script does, but written from the description alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plumb/cache/program.hpp"
#include "simulator/support/xml.hpp"

namespace plumb::test {

struct PageAction {
  std::int64_t start = 0;  // ticks
  std::int64_t end = 0;
  std::int64_t exposed = 0;
  Op op = Op::forward;
  int stage = 0;
  int microbatch = 0;
  int transfer = -1;  // of the message it waited for
  bool backward = false;
  int transfer_microbatch = 0;
};

struct PageMessage {
  std::int64_t transfer = 0;
  bool backward = false;
  std::int64_t microbatch = 0;
  std::int64_t start = 0;
  std::int64_t sent = 0;
  std::int64_t arrived = 0;
  std::int64_t ready = 0;
  std::int64_t posted = 0;
};

struct PagePiece {
  int kind = 0;
  int rank = 0;
  int to = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct PageMemoryPoint {
  std::int64_t at = 0;
  std::vector<std::int64_t> bytes;  // [class]
  std::int64_t chunks = 0;
};

// The text of the <script> element with that id; empty: there is none.
std::string script_of(std::string_view page, std::string_view id);

// The page without what scripts and styles hold and without its first two lines, parsed as XML.
XmlDocument markup_of(std::string_view page);

// Throw std::runtime_error where a stream is cut off or longer than it says.
std::vector<std::vector<PageAction>> actions_of(std::string_view page, int num_ranks, int num_stages);
std::vector<PageMessage> messages_of(std::string_view page, std::size_t num_transfers);
std::vector<PagePiece> path_of(std::string_view page);
std::vector<std::vector<PageMemoryPoint>> memory_of(std::string_view page, int num_ranks, std::size_t num_classes);

}  // namespace plumb::test

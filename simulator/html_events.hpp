// SPDX-License-Identifier: Apache-2.0
//
// html_events.hpp (private): the computations, messages and memory of a step as the bytes that html/data.js reads.
//
// Everything is a stream of numbers (html_bytes.hpp), predicted from what came before, so that a regular step takes two
// or three bytes per action. Times are in ticks. A stream that would be too long leaves out the middle of the step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plumb/simulator/html_page.hpp"

namespace plumb {

// Picoseconds of one tick: 1, or 1000 where a step has more picoseconds than a double counts.
std::int64_t tick_of(SimTime step);

// What lies wholly within is not in the stream.
struct LeftOut {
  SimTime from{0};
  SimTime to{0};
};

struct EventStream {
  std::string bytes;
  std::size_t kept = 0;
  std::size_t all = 0;
  std::optional<LeftOut> left_out;
};

// Per rank the number of actions, then for each:
//   flags: 1 idle before it, 2 another microbatch than the one after the last of its kind, 4 another duration than
//          that, 8 waited for a message, 16 some of the idle time is not exposed; op in bits 5 and 6; 128 another stage
//          than the last action
//   stage                                  if 128
//   idle ticks                             if 1
//   exposed ticks                          if 16 (else all of the idle time, if 8, or none)
//   microbatch, signed: less the expected  if 2
//   duration                               if 4
//   transfer * 2 + backward, and signed: its microbatch less this one's    if 8
// "Of its kind": same rank, op and stage. Order: as in the rank's program.
EventStream action_stream(const Program& program, const Timeline& timeline, const HtmlLimits& limits);

// The number of messages, then for each, in the order of the program:
//   flags: 1 backward, 2 another time on the link than the last of its transfer and direction, 4 another latency,
//          8 the sender was ready before it started, 16 the receive was posted before it started
//   transfer, signed: less the last one's; microbatch, signed: less one and the last one of its transfer and direction
//   start, signed: less the last message's
//   sent - start, signed   if 2;   arrived - sent, signed   if 4;   start - send_ready   if 8;   start - posted   if 16
EventStream message_stream(const Program& program, const Timeline& timeline, const HtmlLimits& limits);

// The number of pieces of the longest chain, then of each: its kind (PathKind), rank, the receiver's rank if it is a
// message, and how many ticks it takes. The first begins at 0, each where the one before ends. More than the limit:
// none.
std::string path_stream(const std::vector<PathPiece>& path, std::int64_t tick, const HtmlLimits& limits);

// The number of transfers, then from_chunk, to_chunk, units * 2 + bulk of each.
std::string transfer_stream(const Program& program);

// Per rank the number of points, then for each the ticks since the last, signed changes of every class and of the
// count. Thinned to the limit: of neighbouring points the one with the most bytes stays. `was_thinned` says whether.
std::string memory_stream(const HtmlMemory& memory, std::int64_t tick, const HtmlLimits& limits, bool& was_thinned);

}  // namespace plumb

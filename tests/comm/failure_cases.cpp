// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "conformance.hpp"
#include "traffic.hpp"

namespace plumb::testing {
namespace {

/// The fault that `run` ends with; an end without one, or by another exception, breaks the case.
TransportFault fault_of(const std::function<void()>& run, const char* what) {
  const auto start = std::chrono::steady_clock::now();
  try {
    run();
  } catch (const TransportError& error) {
    const bool was_told = std::chrono::steady_clock::now() - start < patience / 2;
    check(was_told, fmt::format("{}: ended by its own limit and not by the failure", what));
    check(std::string(error.what()).find('\n') == std::string::npos, "a fault takes more than one line");
    return error.fault();
  }
  throw std::runtime_error(fmt::format("{}: no TransportError", what));
}

void expect_peer_fault(const TransportFault& fault, Transport& t, PeerId failed, const char* text) {
  check(fault.kind == TransportErrorKind::peer, fmt::format("kind is not peer: {}", to_text(fault)));
  check(fault.rank == t.rank() && fault.peer == failed, fmt::format("wrong ranks: {}", to_text(fault)));
  check(fault.text.find(text) != std::string::npos, fmt::format("the cause is missing: {}", to_text(fault)));
}

/// Rank 0 sends `sent`, rank 1 expects `expected`; the fault names segment sizes `expected_bytes` and `got_bytes`.
void sizes_differ(RankEnds ends, const std::vector<std::size_t>& sent, const std::vector<std::size_t>& expected,
                  std::size_t expected_bytes, std::size_t got_bytes, bool receive_first) {
  Transport& t = ends.transport;
  Message out(sent), in(expected), never({8});
  Poster poster(t);
  const bool receives = t.rank().value == 1;
  const TransportFault fault = fault_of(
      [&] {
        if (receives == receive_first) ends.control.barrier(patience);
        if (t.rank().value == 0) poster.send(PeerId{1}, Lane::bulk, out);
        if (receives) poster.receive(PeerId{0}, Lane::bulk, in);
        if (receives != receive_first) ends.control.barrier(patience);
        if (!receives) poster.receive(PeerId{1}, Lane::urgent, never);  // rank 0 and bystanders wait for rank 1
        poster.finish_all();
      },
      "sizes differ");
  if (receives) {
    check(fault.kind == TransportErrorKind::protocol, fmt::format("kind is not protocol: {}", to_text(fault)));
    check(fault.rank == t.rank() && fault.peer == PeerId{0} && fault.lane == Lane::bulk,
          fmt::format("wrong place: {}", to_text(fault)));
    check(fault.expected_bytes == expected_bytes, fmt::format("expected {}: {}", expected_bytes, to_text(fault)));
    check(fault.got_bytes == got_bytes, fmt::format("got {}: {}", got_bytes, to_text(fault)));
  } else {
    expect_peer_fault(fault, t, PeerId{1}, "bytes");
  }
  t.fail("sizes differ");
}

void shorter_message(RankEnds ends) { sizes_differ(ends, {100}, {108}, 108, 100, true); }
void shorter_message_early(RankEnds ends) { sizes_differ(ends, {100}, {108}, 108, 100, false); }
void longer_message(RankEnds ends) { sizes_differ(ends, {108}, {100}, 100, 108, true); }
void longer_message_early(RankEnds ends) { sizes_differ(ends, {108}, {100}, 100, 108, false); }
void shorter_large_message(RankEnds ends) {
  sizes_differ(ends, {mebibyte}, {2 * mebibyte}, 2 * mebibyte, mebibyte, true);
}
void longer_large_message(RankEnds ends) {
  sizes_differ(ends, {2 * mebibyte}, {mebibyte}, mebibyte, 2 * mebibyte, true);
}
void shifted_segments(RankEnds ends) { sizes_differ(ends, {64, 32, 64}, {64, 64, 32}, 64, 32, true); }

void failed_rank_releases_the_others(RankEnds ends) {
  Transport& t = ends.transport;
  const PeerId failing{t.size() - 1};
  // Large messages under way in all directions: their memory is gone as soon as fail() has returned.
  Message out({8 * mebibyte}), in({8 * mebibyte}), never({8});
  Poster poster(t);
  poster.receive(previous_of(t), Lane::urgent, never);
  poster.receive(previous_of(t), Lane::bulk, in);
  if (t.rank() != failing) poster.send(next_of(t), Lane::bulk, out);
  ends.control.barrier(patience);
  if (t.rank() == failing) {
    t.fail("out of paper");
    const auto again = fault_of([&] { poster.receive(previous_of(t), Lane::bulk, in); }, "a post after fail()");
    check(again.text.find("out of paper") != std::string::npos, "the own reason is forgotten");
    return;
  }
  expect_peer_fault(fault_of([&] { poster.finish_all(); }, "the wait"), t, failing, "out of paper");
  expect_peer_fault(fault_of([&] { poster.send(next_of(t), Lane::urgent, out); }, "a later post"), t, failing,
                    "out of paper");
  expect_peer_fault(fault_of([&] { t.wait(patience); }, "a later wait"), t, failing, "out of paper");
  expect_peer_fault(fault_of([&] { ends.control.barrier(patience); }, "a later barrier"), t, failing, "out of paper");
  t.fail("a peer failed");
  t.fail("twice");
  expect_peer_fault(fault_of([&] { poster.poll(); }, "after fail()"), t, failing, "out of paper");
}

void failed_rank_ends_an_exchange(RankEnds ends) {
  Transport& t = ends.transport;
  if (t.rank().value == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    t.fail("no text file");
    return;
  }
  expect_peer_fault(fault_of([&] { ends.control.exchange("digest", patience); }, "the exchange"), t, PeerId{0},
                    "no text file");
  t.fail("a peer failed");
}

void missing_rank_is_named(RankEnds ends) {
  Transport& t = ends.transport;
  const PeerId missing{t.size() - 1};
  if (t.rank() == missing) {
    // It comes late and learns that the others gave up; in between nobody may touch what they sent to it.
    const auto deadline = std::chrono::steady_clock::now() + patience;
    const auto fault = fault_of(
        [&] {
          while (std::chrono::steady_clock::now() < deadline)
            t.wait(std::chrono::milliseconds(10));
        },
        "the late rank");
    check(fault.kind == TransportErrorKind::peer, to_text(fault));
    t.fail("late");
    return;
  }
  const std::string mine(50000, 'x');
  const auto fault = fault_of([&] { ends.control.exchange(mine, std::chrono::milliseconds(300)); }, "the exchange");
  check(fault.kind == TransportErrorKind::timeout || fault.kind == TransportErrorKind::peer, to_text(fault));
  check(fault.text.find(fmt::format("rank {}", missing.value)) != std::string::npos,
        fmt::format("the missing rank is not named: {}", to_text(fault)));
  t.fail("a rank is missing");
}

constexpr ConformanceCase failure_case_list[] = {
    {"a shorter message is a protocol fault of the receiver", 2, shorter_message},
    {"a shorter message that came early is a protocol fault of the receiver", 2, shorter_message_early},
    {"a longer message is a protocol fault of the receiver", 2, longer_message},
    {"a longer message that came early is a protocol fault of the receiver", 2, longer_message_early},
    {"a shorter large message is a protocol fault of the receiver", 2, shorter_large_message},
    {"a longer large message is a protocol fault of the receiver", 2, longer_large_message},
    {"equal sums in different segments are a protocol fault", 2, shifted_segments},
    {"a failed rank releases the others and frees the memory", 2, failed_rank_releases_the_others},
    {"a failed rank ends an exchange", 2, failed_rank_ends_an_exchange},
    {"a rank that never comes is named", 2, missing_rank_is_named},
};

}  // namespace

std::span<const ConformanceCase> failure_cases() { return failure_case_list; }

}  // namespace plumb::testing

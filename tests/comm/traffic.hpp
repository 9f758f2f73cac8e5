// SPDX-License-Identifier: Apache-2.0
// traffic.hpp: messages with recognisable bytes and a poster that waits with a limit. Tools of the conformance cases.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plumb/comm/transport.hpp"

namespace plumb::testing {

inline constexpr std::chrono::seconds patience{20};
inline constexpr std::size_t mebibyte = std::size_t{1} << 20;

/// Throws std::runtime_error(text) unless ok.
void check(bool ok, const std::string& text);

/// A small generator that gives the same numbers on every rank.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

/// One message in memory: segments of its own with guard bytes around each.
class Message {
 public:
  explicit Message(const std::vector<std::size_t>& sizes_bytes);

  /// Bytes that only this (from, to, lane, index) has.
  void fill(PeerId from, PeerId to, Lane lane, std::uint64_t index);
  /// Throws unless every byte is as fill() writes it and no guard byte was touched.
  void expect(PeerId from, PeerId to, Lane lane, std::uint64_t index) const;

  std::vector<Segment> segments();
  std::vector<ConstSegment> const_segments() const;
  std::size_t size_bytes() const;

 private:
  static constexpr std::size_t guard_bytes = 16;
  std::vector<std::vector<std::byte>> parts_;
};

/// Posts and keeps count of what is unfinished; every wait ends with an exception after `patience`. Declare it after
/// the messages: when a case breaks off, it fails the transport before their memory goes.
class Poster {
 public:
  explicit Poster(Transport& transport) : transport_(transport) {}
  ~Poster() {
    if (num_open_ > 0) transport_.fail("a case broke off with messages under way");
  }
  Poster(const Poster&) = delete;
  Poster& operator=(const Poster&) = delete;

  Ticket send(PeerId to, Lane lane, const Message& message);
  Ticket receive(PeerId from, Lane lane, Message& message);

  bool is_finished(Ticket ticket) const { return ticket.value >= open_.size() || !open_[ticket.value]; }
  /// Moves on without waiting; returns how many finished.
  std::size_t poll();
  void finish(Ticket ticket);
  void finish_all() { finish_down_to(0); }
  void finish_down_to(std::size_t num_open);
  std::size_t num_open() const { return num_open_; }

 private:
  Ticket opened(Ticket ticket);
  template <class Done>
  void wait_until(Done done);

  Transport& transport_;
  std::vector<bool> open_;
  std::size_t num_open_ = 0;
};

inline PeerId next_of(const Transport& t) { return PeerId{(t.rank().value + 1) % t.size()}; }
inline PeerId previous_of(const Transport& t) { return PeerId{(t.rank().value + t.size() - 1) % t.size()}; }

}  // namespace plumb::testing

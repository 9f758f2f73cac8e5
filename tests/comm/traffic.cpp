// SPDX-License-Identifier: Apache-2.0
#include "traffic.hpp"

#include <array>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

namespace plumb::testing {
namespace {

constexpr std::byte guard{0xA5};

std::uint64_t seed_of(PeerId from, PeerId to, Lane lane, std::uint64_t index, std::size_t part) {
  std::uint64_t seed = index;
  for (const std::uint64_t field : {static_cast<std::uint64_t>(from.value), static_cast<std::uint64_t>(to.value),
                                    static_cast<std::uint64_t>(lane), static_cast<std::uint64_t>(part)}) {
    seed = Random(seed * 1000003 + field).next();
  }
  return seed;
}

// Eight bytes at a time: large messages are filled and compared under sanitizers.
void pattern(std::uint64_t seed, std::size_t offset, std::array<std::byte, 8>& out) {
  const std::uint64_t word = (seed + offset) * 0x9E3779B97F4A7C15ULL;
  std::memcpy(out.data(), &word, out.size());
}

}  // namespace

void check(bool ok, const std::string& text) {
  if (!ok) throw std::runtime_error(text);
}

std::uint64_t Random::next() {  // splitmix64
  state_ += 0x9E3779B97F4A7C15ULL;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

Message::Message(const std::vector<std::size_t>& sizes_bytes) {
  for (const std::size_t size_bytes : sizes_bytes)
    parts_.emplace_back(size_bytes + 2 * guard_bytes, guard);
}

void Message::fill(PeerId from, PeerId to, Lane lane, std::uint64_t index) {
  std::array<std::byte, 8> word{};
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const std::uint64_t seed = seed_of(from, to, lane, index, p);
    const std::size_t size_bytes = parts_[p].size() - 2 * guard_bytes;
    for (std::size_t i = 0; i < size_bytes; i += word.size()) {
      pattern(seed, i, word);
      std::memcpy(parts_[p].data() + guard_bytes + i, word.data(), std::min(word.size(), size_bytes - i));
    }
  }
}

void Message::expect(PeerId from, PeerId to, Lane lane, std::uint64_t index) const {
  std::array<std::byte, 8> word{};
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const auto where = [&] {
      return fmt::format("message {} from {} to {} on the {} lane, segment {}", index, from.value, to.value,
                         to_text(lane), p);
    };
    const std::uint64_t seed = seed_of(from, to, lane, index, p);
    const std::size_t size_bytes = parts_[p].size() - 2 * guard_bytes;
    for (std::size_t i = 0; i < size_bytes; i += word.size()) {
      pattern(seed, i, word);
      const bool same =
          std::memcmp(parts_[p].data() + guard_bytes + i, word.data(), std::min(word.size(), size_bytes - i)) == 0;
      if (!same) check(false, fmt::format("{}: wrong bytes near {}", where(), i));
    }
    for (std::size_t i = 0; i < guard_bytes; ++i) {
      const bool untouched = parts_[p][i] == guard && parts_[p][parts_[p].size() - 1 - i] == guard;
      if (!untouched) check(false, where() + ": bytes outside the segment were written");
    }
  }
}

std::vector<Segment> Message::segments() {
  std::vector<Segment> list;
  for (auto& part : parts_)
    list.push_back({part.data() + guard_bytes, part.size() - 2 * guard_bytes});
  return list;
}

std::vector<ConstSegment> Message::const_segments() const {
  std::vector<ConstSegment> list;
  for (const auto& part : parts_)
    list.push_back({part.data() + guard_bytes, part.size() - 2 * guard_bytes});
  return list;
}

std::size_t Message::size_bytes() const {
  std::size_t total_bytes = 0;
  for (const auto& part : parts_)
    total_bytes += part.size() - 2 * guard_bytes;
  return total_bytes;
}

Ticket Poster::send(PeerId to, Lane lane, const Message& message) {
  return opened(transport_.post_send(to, lane, message.const_segments()));
}

Ticket Poster::receive(PeerId from, Lane lane, Message& message) {
  return opened(transport_.post_receive(from, lane, message.segments()));
}

Ticket Poster::opened(Ticket ticket) {
  if (ticket.value >= open_.size()) open_.resize(ticket.value + 1);
  check(!open_[ticket.value], fmt::format("ticket {} given out twice", ticket.value));
  open_[ticket.value] = true;
  ++num_open_;
  return ticket;
}

std::size_t Poster::poll() {
  std::array<Ticket, 5> completed;  // few, so that several calls share a crowd
  const std::size_t num_completed = transport_.progress(completed);
  check(num_completed <= completed.size(), "progress() says it wrote more tickets than it had room for");
  for (std::size_t i = 0; i < num_completed; ++i) {
    check(!is_finished(completed[i]), fmt::format("ticket {} finished but is not open", completed[i].value));
    open_[completed[i].value] = false;
    --num_open_;
  }
  return num_completed;
}

template <class Done>
void Poster::wait_until(Done done) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!done()) {
    if (poll() > 0) continue;
    const auto left = deadline - std::chrono::steady_clock::now();
    check(left.count() > 0,
          fmt::format("rank {}: {} messages did not finish in time", transport_.rank().value, num_open_));
    transport_.wait(left);
  }
}

void Poster::finish(Ticket ticket) {
  wait_until([&] { return is_finished(ticket); });
}

void Poster::finish_down_to(std::size_t num_open) {
  wait_until([&] { return num_open_ <= num_open; });
}

}  // namespace plumb::testing

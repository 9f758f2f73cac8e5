// SPDX-License-Identifier: Apache-2.0
//
// faulty_transport.hpp (tests): a Transport that spoils its n-th send and is otherwise the one it wraps.
#pragma once

#include <vector>

#include "plumb/comm/transport.hpp"

namespace plumb::test {

class FaultyTransport final : public Transport {
 public:
  enum class Fault { none, last_segment_missing, one_bit_flipped, earlier_message_again };

  FaultyTransport(Transport& inner, Fault fault, int which) : inner_(inner), fault_(fault), which_(which) {}

  PeerId rank() const noexcept override { return inner_.rank(); }
  std::int32_t size() const noexcept override { return inner_.size(); }
  void reserve(std::size_t num_messages, std::size_t num_segments) override {
    inner_.reserve(num_messages, num_segments);
  }

  Ticket post_send(PeerId to, Lane lane, std::span<const ConstSegment> segments) override {
    const int number = num_sends_++;
    if (number + 1 == which_) keep(segments);
    if (number != which_ || fault_ == Fault::none) return inner_.post_send(to, lane, segments);
    if (fault_ == Fault::last_segment_missing) return inner_.post_send(to, lane, segments.first(segments.size() - 1));
    if (fault_ == Fault::one_bit_flipped) {
      keep(segments);
      kept_.front().front() ^= std::byte{1};
    }
    std::vector<ConstSegment> spoiled;
    for (const auto& bytes : kept_)
      spoiled.push_back({bytes.data(), bytes.size()});
    return inner_.post_send(to, lane, spoiled);
  }
  Ticket post_receive(PeerId from, Lane lane, std::span<const Segment> segments) override {
    return inner_.post_receive(from, lane, segments);
  }
  std::size_t progress(std::span<Ticket> completed) override { return inner_.progress(completed); }
  void wait(std::chrono::nanoseconds limit) override { inner_.wait(limit); }
  void notify() noexcept override { inner_.notify(); }
  const Counters& counters() const noexcept override { return inner_.counters(); }
  void fail(std::string_view reason) noexcept override { inner_.fail(reason); }

 private:
  void keep(std::span<const ConstSegment> segments) {
    kept_.clear();
    for (const ConstSegment& segment : segments)
      kept_.emplace_back(segment.data, segment.data + segment.size_bytes);
  }

  Transport& inner_;
  Fault fault_;
  int which_;  // counts sends from 0
  int num_sends_ = 0;
  std::vector<std::vector<std::byte>> kept_;
};

}  // namespace plumb::test

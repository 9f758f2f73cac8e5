// SPDX-License-Identifier: Apache-2.0
//
// recording_transport.hpp (tests): a Transport that notes the sizes of every segment posted and is otherwise the one it
// wraps.
#pragma once

#include <vector>

#include "plumb/comm/transport.hpp"

namespace plumb::test {

class RecordingTransport final : public Transport {
 public:
  explicit RecordingTransport(Transport& inner) : inner_(inner) {}

  // [message in posting order][segment]: bytes
  std::vector<std::vector<std::size_t>> sent;
  std::vector<std::vector<std::size_t>> received;

  PeerId rank() const noexcept override { return inner_.rank(); }
  std::int32_t size() const noexcept override { return inner_.size(); }
  void reserve(std::size_t num_messages, std::size_t num_segments) override {
    inner_.reserve(num_messages, num_segments);
  }
  Ticket post_send(PeerId to, Lane lane, std::span<const ConstSegment> segments) override {
    note(sent, segments);
    return inner_.post_send(to, lane, segments);
  }
  Ticket post_receive(PeerId from, Lane lane, std::span<const Segment> segments) override {
    note(received, segments);
    return inner_.post_receive(from, lane, segments);
  }
  std::size_t progress(std::span<Ticket> completed) override { return inner_.progress(completed); }
  void wait(std::chrono::nanoseconds limit) override { inner_.wait(limit); }
  void notify() noexcept override { inner_.notify(); }
  const Counters& counters() const noexcept override { return inner_.counters(); }
  void fail(std::string_view reason) noexcept override { inner_.fail(reason); }

 private:
  template <class Segments>
  static void note(std::vector<std::vector<std::size_t>>& messages, const Segments& segments) {
    auto& sizes = messages.emplace_back();
    for (const auto& segment : segments)
      sizes.push_back(segment.size_bytes);
  }
  Transport& inner_;
};

}  // namespace plumb::test

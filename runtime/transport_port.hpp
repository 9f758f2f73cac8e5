// SPDX-License-Identifier: Apache-2.0
//
// transport_port.hpp (private): posts a program's messages on a Transport and collects what has finished.
//
// It turns slots into segments, remembers which ticket is which step, appends and checks the trailers if asked, and
// splits the transport's byte counts by direction. Not thread-safe: the communication worker's own.
#pragma once

#include <cstdint>
#include <vector>

#include "comm_state.hpp"
#include "plumb/comm/transport.hpp"
#include "plumb/runtime/executor.hpp"
#include "verify_trailer.hpp"

namespace plumb {

class TransportPort final : public MessagePort {
 public:
  TransportPort(const RankPlan& plan, BlockStore& store, Transport& transport, const ExecutorOptions& options);

  // Room in the transport for all that can be in flight.
  void reserve();
  void reset(std::int64_t step);

  void post(std::int32_t comm) override;

  // Hands every finished message to `comm`. True if there was one. Throws TransportError, MessageMismatch.
  bool collect(CommState& comm);

  const Traffic& sent() const { return sent_; }
  const Traffic& received() const { return received_; }

  // The oldest unfinished message of a channel, -1 if there is none: where a transport's complaint about the channel
  // belongs.
  std::int32_t oldest_in_flight(RankId peer, Lane lane, bool sends) const;

 private:
  void check_trailer(std::int32_t comm) const;
  std::uint64_t checksum_of(std::int32_t comm) const;
  VerifyTrailer expected_trailer(std::int32_t comm) const;

  const RankPlan& plan_;
  BlockStore& store_;
  Transport& transport_;
  bool verify_;
  StepObserver* observer_;
  std::int64_t step_ = 0;
  std::vector<std::int32_t> comm_of_ticket_;
  std::vector<std::uint8_t> in_flight_;  // [comm]
  std::vector<VerifyTrailer> trailers_;  // [comm], if they are wanted
  std::vector<Segment> segments_;
  std::vector<ConstSegment> const_segments_;
  Traffic sent_;
  Traffic received_;
};

// The transport's name of a lane.
Lane to_lane(MessageLane lane);

}  // namespace plumb

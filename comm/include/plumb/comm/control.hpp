// SPDX-License-Identifier: Apache-2.0
// control.hpp: the few words that all ranks exchange around a step, apart from the data channels.
//
// Used at start-up to compare digests and configurations of all ranks before the first data byte, and between steps
// for small results. It is NOT a data path: everything goes to everybody. Calls are collective (each rank makes
// the same calls in the same order), wait at most `limit`, and also end early, by a TransportError of kind `peer`,
// when the Transport of any rank of the job has failed. A passed limit is kind `timeout`, names the missing ranks and
// fails the job, since ranks can no longer agree. Threads: one at a time, and never while another thread is inside
// this rank's Transport.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plumb/comm/peer.hpp"
#include "plumb/comm/transport_error.hpp"

namespace plumb {

class ControlPlane {
 public:
  /// A longer string is refused with std::invalid_argument.
  static constexpr std::size_t max_text_bytes = std::size_t{16} << 20;

  ControlPlane() = default;
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;
  virtual ~ControlPlane() = default;

  virtual PeerId rank() const noexcept = 0;
  virtual std::int32_t size() const noexcept = 0;

  /// Gives every rank the strings of all ranks, in rank order. Any bytes, also none.
  virtual std::vector<std::string> exchange(std::string mine, std::chrono::nanoseconds limit) = 0;

  /// Returns once every rank has called it.
  virtual void barrier(std::chrono::nanoseconds limit) = 0;
};

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
// emulated_links.hpp: links that are slower than the memory that the bytes really cross, shared by all ranks of a job.
//
// Every rank has one full-duplex network end with a rate and a latency. A message holds the sender's egress and the
// receiver's ingress for its duration, is not pre-empted, and starts whenever both are free: urgent first, then whose
// send was posted first. Poorer links can be asked for (LinkShape). ShapedTransport asks when a message may be handed
// out; no byte passes through here. The ranks are threads of one process, or processes of one machine, which then share
// a block of memory. It is NOT a network: it has no topology and loses nothing.
// Threads: any. Ownership: outlives the ShapedTransports that use it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "plumb/comm/control.hpp"
#include "plumb/comm/peer.hpp"

namespace plumb {

struct LinkShape {
  std::chrono::nanoseconds latency{0};
  double ns_per_byte = 0;      ///< 0: messages hold no link, any number travels at once
  bool urgent_first = true;    ///< false: lanes count for nothing, whose send was posted first goes first
  bool single_stream = false;  ///< a rank sends or receives one message at a time, in the order that it has announced
};

/// What one message did on its way; as times of std::chrono::steady_clock since its epoch.
struct WireTimes {
  std::chrono::nanoseconds started{0};  ///< holds both ends from here
  std::chrono::nanoseconds left{0};     ///< to here
  std::chrono::nanoseconds arrived{0};  ///< the latency later
};

namespace comm {
class LinkBoard;
}

class EmulatedLinks {
 public:
  /// For ranks that are threads. `most_messages` in flight over all ranks, counted from the first of their two posts.
  /// std::invalid_argument unless 1 <= num_ranks <= 512 and the shape is finite and not negative.
  EmulatedLinks(std::int32_t num_ranks, std::size_t most_messages, const LinkShape& shape);

  /// For ranks that are processes of one machine: collective over the job, equal arguments. Throws TransportError (net)
  /// when a rank cannot map the shared block, as on another machine.
  EmulatedLinks(ControlPlane& control, std::size_t most_messages, const LinkShape& shape,
                std::chrono::nanoseconds limit);
  ~EmulatedLinks();
  EmulatedLinks(const EmulatedLinks&) = delete;
  EmulatedLinks& operator=(const EmulatedLinks&) = delete;

  std::int32_t size() const noexcept;
  comm::LinkBoard& board() noexcept { return *board_; }

 private:
  std::unique_ptr<comm::LinkBoard> board_;
};

}  // namespace plumb

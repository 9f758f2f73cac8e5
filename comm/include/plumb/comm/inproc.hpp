// SPDX-License-Identifier: Apache-2.0
// inproc.hpp: ranks are threads of this process.
//
// Whoever posts second, sender or receiver, copies the bytes on the spot: one copy, no buffer, so a send never
// finishes before its receive is posted (a program that needs buffering shows itself here). An idle wait sleeps.
// Transport and ControlPlane of one rank belong to the thread that plays the rank; they keep the shared state alive,
// so the hub may go first. It is NOT for ranks in several processes.
#pragma once

#include <cstdint>
#include <memory>

#include "plumb/comm/control.hpp"
#include "plumb/comm/transport.hpp"

namespace plumb {

namespace comm {
struct InprocState;
}

class InprocHub {
 public:
  /// `num_ranks` in 1 .. 512, else std::invalid_argument.
  explicit InprocHub(std::int32_t num_ranks);
  ~InprocHub();
  InprocHub(const InprocHub&) = delete;
  InprocHub& operator=(const InprocHub&) = delete;

  std::int32_t size() const noexcept;

  /// Once per rank: std::invalid_argument on an unknown rank or the second call. Any thread.
  std::unique_ptr<Transport> make_transport(PeerId rank);
  std::unique_ptr<ControlPlane> make_control(PeerId rank);

 private:
  std::shared_ptr<comm::InprocState> state_;
};

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "mpi_control.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "control_check.hpp"
#include "post_check.hpp"

namespace plumb::comm {

std::vector<std::string> MpiControl::exchange(std::string mine, std::chrono::nanoseconds limit) {
  const IssuingGuard guard(job_.inside(), rank());
  check_exchange(rank(), mine);
  job_.throw_if_failed();
  incoming_.assign(static_cast<std::size_t>(size()), Incoming{});
  std::vector<PeerId> missing;
  for (std::int32_t peer = 0; peer < size(); ++peer) {
    if (peer != rank().value) missing.push_back(PeerId{peer});
  }
  incoming_[static_cast<std::size_t>(rank().value)].text = mine;
  job_.send_text(std::move(mine));
  const auto start = Backoff::Clock::now();
  const auto deadline = start + std::min(limit, longest_wait);
  backoff_.activity();
  for (auto now = start;; now = Backoff::Clock::now()) {
    job_.poll();
    const std::size_t num_missing = missing.size();
    // After poll(): a text that was sent before its rank's last note is found here.
    std::erase_if(missing, [&](PeerId peer) { return has_come(peer); });
    if (missing.size() < num_missing) backoff_.activity();
    if (missing.empty() && job_.texts_sent()) break;  // complete, whatever came after
    job_.throw_if_failed();
    const auto gone = std::find_if(missing.begin(), missing.end(), [&](PeerId p) {
      return job_.left(p) != nullptr && !incoming_[static_cast<std::size_t>(p.value)].started;
    });
    const bool too_late = now >= deadline;
    if (gone != missing.end() || too_late) {
      const TransportFault fault =
          gone != missing.end() ? exchange_deserted(rank(), *gone) : exchange_timeout(rank(), missing, limit);
      job_.fail(fault);
      throw TransportError(fault);
    }
    switch (backoff_.next(now)) {
      case Pause::none:
        break;
      case Pause::yield:
        std::this_thread::yield();
        break;
      case Pause::sleep:
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        break;
    }
  }
  std::vector<std::string> all;
  for (Incoming& incoming : incoming_)
    all.push_back(std::move(incoming.text));
  return all;
}

bool MpiControl::has_come(PeerId from) {
  Incoming& incoming = incoming_[static_cast<std::size_t>(from.value)];
  if (!incoming.started) {
    int there = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    job_.check(MPI_Improbe(from.value, text_tag, job_.communicator(), &there, &message, &status), "MPI_Improbe");
    if (there == 0) return false;
    int size_bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &size_bytes);
    incoming.text.resize(static_cast<std::size_t>(size_bytes));
    job_.check(MPI_Imrecv(incoming.text.data(), size_bytes, MPI_BYTE, &message, &incoming.request), "MPI_Imrecv");
    incoming.started = true;
  }
  int done = 0;
  job_.check(MPI_Test(&incoming.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

}  // namespace plumb::comm

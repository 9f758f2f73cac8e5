// SPDX-License-Identifier: Apache-2.0
#include "plumb/comm/inproc.hpp"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "inproc_state.hpp"

namespace plumb {
namespace comm {

InprocState::InprocState(std::int32_t num_ranks)
    : size(num_ranks),
      channels(num_lanes * static_cast<std::size_t>(num_ranks) * static_cast<std::size_t>(num_ranks)),
      ranks(static_cast<std::size_t>(num_ranks)) {
  exchange.arrived.resize(ranks.size());
}

InprocChannel& InprocState::channel(PeerId from, PeerId to, Lane lane) {
  const auto pair = static_cast<std::size_t>(from.value) * ranks.size() + static_cast<std::size_t>(to.value);
  return channels[pair * num_lanes + static_cast<std::size_t>(lane)];
}

void InprocState::fail(TransportFault fault) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failed_.load(std::memory_order_relaxed)) return;
    first_failure_ = std::move(fault);
    failed_.store(true, std::memory_order_release);
  }
  for (InprocRank& rank : ranks)
    rank.event.set();
  { const std::lock_guard lock(exchange.mutex); }  // whoever waits there either saw `failed_` or hears the next line
  exchange.changed.notify_all();
}

TransportFault InprocState::failure_seen_by(PeerId rank) const {
  if (first_failure_.rank == rank) return first_failure_;
  TransportFault seen;
  seen.kind = TransportErrorKind::peer;
  seen.rank = rank;
  seen.peer = first_failure_.rank;
  seen.text = fmt::format("rank {} failed: {}", first_failure_.rank.value, first_failure_.text);
  return seen;
}

}  // namespace comm

namespace {

std::int32_t checked_size(std::int32_t num_ranks) {
  constexpr std::int32_t max_ranks = 512;
  if (num_ranks < 1 || num_ranks > max_ranks) {
    throw std::invalid_argument(fmt::format("{} ranks as threads; legal: 1 to {}", num_ranks, max_ranks));
  }
  return num_ranks;
}

void claim(std::atomic<bool> comm::InprocRank::*part, const char* what, comm::InprocState& state, PeerId rank) {
  if (rank.value < 0 || rank.value >= state.size) {
    throw std::invalid_argument(
        fmt::format("no rank {} among {} ranks (legal: 0 to {})", rank.value, state.size, state.size - 1));
  }
  if ((state.at(rank).*part).exchange(true)) {
    throw std::invalid_argument(fmt::format("rank {} already has its {}", rank.value, what));
  }
}

}  // namespace

InprocHub::InprocHub(std::int32_t num_ranks) : state_(std::make_shared<comm::InprocState>(checked_size(num_ranks))) {}

InprocHub::~InprocHub() = default;

std::int32_t InprocHub::size() const noexcept { return state_->size; }

std::unique_ptr<Transport> InprocHub::make_transport(PeerId rank) {
  claim(&comm::InprocRank::has_transport, "transport", *state_, rank);
  return comm::make_inproc_transport(state_, rank);
}

std::unique_ptr<ControlPlane> InprocHub::make_control(PeerId rank) {
  claim(&comm::InprocRank::has_control, "control plane", *state_, rank);
  return comm::make_inproc_control(state_, rank);
}

}  // namespace plumb

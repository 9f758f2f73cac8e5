// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "control_check.hpp"
#include "inproc_state.hpp"

namespace plumb::comm {
namespace {

class InprocControl final : public ControlPlane {
 public:
  InprocControl(std::shared_ptr<InprocState> state, PeerId rank) : state_(std::move(state)), rank_(rank) {}

  PeerId rank() const noexcept override { return rank_; }
  std::int32_t size() const noexcept override { return state_->size; }

  std::vector<std::string> exchange(std::string mine, std::chrono::nanoseconds limit) override {
    check_exchange(rank_, mine);
    InprocExchange& shared = state_->exchange;
    std::unique_lock lock(shared.mutex);
    if (state_->has_failed()) throw TransportError(state_->failure_seen_by(rank_));
    const std::uint64_t round = shared.round;
    shared.arrived[static_cast<std::size_t>(rank_.value)] = std::move(mine);
    if (++shared.num_arrived == shared.arrived.size()) {
      publish(shared);
      shared.changed.notify_all();
      return *shared.published;
    }
    const auto done = [&] { return shared.round != round || state_->has_failed() || gone_without(shared); };
    shared.changed.wait_for(lock, std::min(limit, longest_wait), done);
    // The next round cannot be published before this rank has come to it, so `published` is still this round's.
    if (shared.round != round) return *shared.published;
    if (!state_->has_failed()) {
      const auto gone = gone_without(shared);
      const std::vector<PeerId> missing = missing_from(shared);
      lock.unlock();
      state_->fail(gone ? exchange_deserted(rank_, *gone) : exchange_timeout(rank_, missing, limit));
    }
    throw TransportError(state_->failure_seen_by(rank_));
  }

  void barrier(std::chrono::nanoseconds limit) override { exchange({}, limit); }

 private:
  std::vector<PeerId> missing_from(const InprocExchange& shared) const {
    std::vector<PeerId> missing;
    for (std::int32_t peer = 0; peer < state_->size; ++peer) {
      if (!shared.arrived[static_cast<std::size_t>(peer)]) missing.push_back(PeerId{peer});
    }
    return missing;
  }

  /// A rank that has not come to this round and never will.
  std::optional<PeerId> gone_without(const InprocExchange& shared) const {
    for (std::int32_t peer = 0; peer < state_->size; ++peer) {
      const bool is_missing = !shared.arrived[static_cast<std::size_t>(peer)];
      if (is_missing && state_->at(PeerId{peer}).left.load(std::memory_order_relaxed)) return PeerId{peer};
    }
    return std::nullopt;
  }

  static void publish(InprocExchange& shared) {
    std::vector<std::string> all;
    all.reserve(shared.arrived.size());
    for (auto& text : shared.arrived) {
      all.push_back(std::move(*text));
      text.reset();
    }
    shared.published = std::make_shared<const std::vector<std::string>>(std::move(all));
    shared.num_arrived = 0;
    ++shared.round;
  }

  std::shared_ptr<InprocState> state_;
  PeerId rank_;
};

}  // namespace

std::unique_ptr<ControlPlane> make_inproc_control(std::shared_ptr<InprocState> state, PeerId rank) {
  return std::make_unique<InprocControl>(std::move(state), rank);
}

}  // namespace plumb::comm

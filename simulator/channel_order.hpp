// SPDX-License-Identifier: Apache-2.0
//
// channel_order.hpp: which message must have started before another one on the same channel may.
//
// A queue has two ends, each with its own list. The order of both is kept, so that a program whose lists disagree gets
// stuck as it would on a real channel.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/simulate.hpp"

namespace plumb {

class ChannelOrders {
 public:
  ChannelOrders(const Program& program, ChannelOrder order);

  // [message] so many must have started before it may: its predecessor in each end's queue.
  const std::vector<std::uint8_t>& num_before() const { return num_before_; }
  // The messages queued directly behind this one at its sender and at its receiver.
  std::span<const MessageId> after(MessageId message) const;

 private:
  std::vector<std::uint8_t> num_before_;
  std::vector<MessageId> after_;  // two places per message, filled from the front; empty for by_readiness
  std::vector<std::uint8_t> num_after_;
};

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "channel_order.hpp"

#include <map>
#include <tuple>

namespace plumb {

ChannelOrders::ChannelOrders(const Program& program, ChannelOrder order) : num_before_(program.messages.size(), 0) {
  if (order == ChannelOrder::by_readiness) return;
  after_.assign(2 * num_before_.size(), MessageId(-1));
  num_after_.assign(num_before_.size(), 0);
  for (const RankProgram& rank : program.ranks) {
    std::map<std::tuple<CommKind, RankId, MessageLane>, MessageId> last;
    for (const CommStep& step : rank.comm) {
      if (step.kind != CommKind::send && step.kind != CommKind::receive) continue;
      const MessageLane lane = order == ChannelOrder::fifo_per_lane ? step.lane : MessageLane::urgent;
      const auto [place, is_first] = order == ChannelOrder::single_stream
                                         ? last.try_emplace({CommKind::send, RankId{}, lane}, step.message)
                                         : last.try_emplace({step.kind, step.peer, lane}, step.message);
      if (is_first) continue;
      const std::size_t before = place->second.index();
      // Of a message that is there more than twice, simulate() says so when it comes to its ends.
      if (num_after_[before] == 2 || num_before_[step.message.index()] == 2) continue;
      after_[2 * before + num_after_[before]++] = step.message;
      ++num_before_[step.message.index()];
      place->second = step.message;
    }
  }
}

std::span<const MessageId> ChannelOrders::after(MessageId message) const {
  if (after_.empty()) return {};
  return std::span(after_).subspan(2 * message.index(), num_after_[message.index()]);
}

}  // namespace plumb

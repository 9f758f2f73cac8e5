// SPDX-License-Identifier: Apache-2.0
#include "channel_order.hpp"

#include <map>
#include <tuple>

namespace plumb {
namespace {

constexpr std::uint8_t both_ends = 2;

}  // namespace

ChannelOrders::ChannelOrders(const Program& program, const ProgramCut& cut, ChannelOrder order)
    : gates_(static_cast<std::size_t>(cut.messages.size), both_ends) {
  if (order == ChannelOrder::by_readiness) return;
  after_.assign(2 * gates_.size(), MessageId(-1));
  num_after_.assign(gates_.size(), 0);
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const ListCut& comms = cut.comm[r];
    std::map<std::tuple<CommKind, RankId, MessageLane>, MessageId> last;
    for (std::int32_t i = 0; i < comms.size; ++i) {
      const CommStep& step = program.ranks[r].comm[static_cast<std::size_t>(comms.original(i))];
      if (step.kind != CommKind::send && step.kind != CommKind::receive) continue;
      const MessageLane lane = order == ChannelOrder::fifo_per_lane ? step.lane : MessageLane::urgent;
      const MessageId message = cut.message(step.message, i >= comms.at);
      const auto [place, is_first] = order == ChannelOrder::single_stream
                                         ? last.try_emplace({CommKind::send, RankId{}, lane}, message)
                                         : last.try_emplace({step.kind, step.peer, lane}, message);
      if (is_first) continue;
      const std::size_t before = place->second.index();
      after_[2 * before + num_after_[before]++] = message;
      ++gates_[message.index()];
      place->second = message;
    }
  }
}

std::span<const MessageId> ChannelOrders::after(MessageId message) const {
  if (after_.empty()) return {};
  return std::span(after_).subspan(2 * message.index(), num_after_[message.index()]);
}

}  // namespace plumb

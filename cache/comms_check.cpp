// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/comms_check.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "comms_faults.hpp"
#include "comms_tables.hpp"
#include "plumb/cache/comms_program.hpp"

namespace plumb {
namespace {

// Which channels' ends must come in the same order: those of a hop, or those of an ordered pair of ranks.
enum class Queue : std::uint8_t { hop, pair };

Queue queue_of(ChannelModel model) { return model == ChannelModel::fifo_per_edge ? Queue::hop : Queue::pair; }

struct Place {
  RankId rank;
  std::size_t column = 0;
};

// The first receive, rank by rank, that takes the place of another message in its queue.
class OrderComparison {
 public:
  OrderComparison(const CommsSchedule& schedule, Queue queue)
      : schedule_(schedule), layout_(schedule.layout), queue_(queue) {}

  std::optional<ScheduleFault> mismatch() {
    for_each_end([&](const Place& place, const CommAction& comm) {
      if (is_send(comm.op)) sends_of(comm).push_back(place);
    });
    std::vector<std::size_t> received(sends_.size(), 0);
    std::optional<ScheduleFault> found;
    for_each_end([&](const Place& place, const CommAction& comm) {
      if (found || is_send(comm.op)) return;
      const std::size_t number = number_of(partner_of(comm));
      if (number >= sends_.size() || received[number] == sends_[number].size())
        return;  // unmatched: a fault of its own
      const Place& other = sends_[number][received[number]++];
      const CommAction& sent = std::get<CommAction>(schedule_.ranks[other.rank.index()][other.column]);
      if (sent == partner_of(comm)) return;
      found = ScheduleFault{place.rank, place.column, to_string(comm),
                            "gets what rank " + std::to_string(other.rank.value) + " sends as " + to_string(sent) +
                                ": both ends must use the queue in the same order"};
    });
    return found;
  }

 private:
  template <class Visit>
  void for_each_end(Visit&& visit) const {
    for (RankId rank; rank.index() < schedule_.ranks.size(); rank = rank.next()) {
      const std::vector<CommsItem>& items = schedule_.ranks[rank.index()];
      for (std::size_t column = 0; column < items.size(); ++column) {
        const CommAction* comm = std::get_if<CommAction>(&items[column]);
        if (comm != nullptr && moves_data(comm->op)) visit(Place{rank, column}, *comm);
      }
    }
  }

  std::size_t number_of(const CommAction& send) {
    const Hop hop = hop_of(send);
    if (queue_ == Queue::hop) return hop.before.index() * 2 + static_cast<std::size_t>(hop.direction);
    const auto from = layout_.rank_of(send.chunk);
    const auto to = layout_.rank_of(partner_of(send).chunk);
    if (pair_number_.empty()) {
      pair_number_.assign(schedule_.ranks.size(), {});
    }
    // A rank has few neighbours, whatever the number of ranks.
    auto& neighbours = pair_number_[from.index()];
    const auto known = std::find_if(neighbours.begin(), neighbours.end(), [&](const auto& n) { return n.first == to; });
    if (known != neighbours.end()) return known->second;
    neighbours.emplace_back(to, num_pairs_);
    return num_pairs_++;
  }

  std::vector<Place>& sends_of(const CommAction& send) {
    const std::size_t number = number_of(send);
    if (number >= sends_.size()) sends_.resize(number + 1);
    return sends_[number];
  }

  const CommsSchedule& schedule_;
  const Layout& layout_;
  Queue queue_;
  std::vector<std::vector<Place>> sends_;                                 // [queue]
  std::vector<std::vector<std::pair<RankId, std::size_t>>> pair_number_;  // [from]: (to, number)
  std::size_t num_pairs_ = 0;
};

}  // namespace

bool CommsCheck::ok() const {
  return faults.empty() && cycle.empty() &&
         std::all_of(channels.begin(), channels.end(), [](const ChannelVerdict& verdict) { return verdict.safe(); });
}

CommsCheck check_comms(const CommsSchedule& schedule, std::span<const ChannelModel> models, std::size_t max_faults) {
  CommsCheck check;
  CommsFaults found = find_comms_faults(schedule, std::max<std::size_t>(max_faults, 1));
  check.faults = std::move(found.faults);
  check.cycle = std::move(found.cycle);
  check.empty_hops = std::move(found.empty_hops);
  if (!found.can_be_run) return check;
  const Program program = comms_program(schedule);
  const std::optional<ScheduleFault> by_hop = OrderComparison(schedule, Queue::hop).mismatch();
  const std::optional<ScheduleFault> by_pair = OrderComparison(schedule, Queue::pair).mismatch();
  for (const ChannelModel model : models) {
    ChannelVerdict& verdict = check.channels.emplace_back();
    verdict.deadlock = check_deadlock(program, model);
    if (model != ChannelModel::buffered) verdict.mismatch = queue_of(model) == Queue::hop ? by_hop : by_pair;
  }
  return check;
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// local_exchange.hpp (private): the interpreter's channels: whoever posts second copies.
//
// Finished messages are reported by the caller's loop (next_finished), never from inside a post.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm_state.hpp"
#include "plumb/runtime/executor.hpp"

namespace plumb {

class LocalExchange {
 public:
  // One end of a message.
  struct End {
    RankId rank;
    std::int32_t comm = 0;
  };

  explicit LocalExchange(std::int32_t num_ranks);
  // Ranks in order; both outlive the exchange.
  void add_rank(const RankPlan& plan, BlockStore& store);
  void reset();

  void post(RankId rank, std::int32_t comm, StepObserver* observer);
  std::optional<End> next_finished();

  const Traffic& sent(RankId rank) const { return sent_[rank.index()]; }
  const Traffic& received(RankId rank) const { return received_[rank.index()]; }

 private:
  struct Channel {
    std::vector<End> sends;
    std::vector<End> receives;
    std::size_t num_matched = 0;
  };
  struct Rank {
    const RankPlan* plan = nullptr;
    BlockStore* store = nullptr;
  };

  void match(const End& send, const End& receive);
  const CommStep& step_of(const End& end) const;

  std::size_t num_ranks_;
  std::vector<Rank> ranks_;
  std::vector<Channel> channels_;  // [from][to][lane]
  std::vector<End> finished_;
  std::size_t next_finished_ = 0;
  std::vector<Traffic> sent_;
  std::vector<Traffic> received_;
};

// A rank's way into the exchange.
class LocalPort final : public MessagePort {
 public:
  LocalPort(RankId rank, LocalExchange& exchange, StepObserver* observer)
      : rank_(rank), exchange_(exchange), observer_(observer) {}
  void post(std::int32_t comm) override { exchange_.post(rank_, comm, observer_); }

 private:
  RankId rank_;
  LocalExchange& exchange_;
  StepObserver* observer_;
};

}  // namespace plumb

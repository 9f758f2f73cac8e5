// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <tuple>

#include <fmt/format.h>

#include "comms_tables.hpp"
#include "plumb/cache/comms_program.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/invariant.hpp"

namespace plumb {
namespace {

constexpr std::int32_t no_message = -1;

// One item of a rank: a computation or an overlapped pair.
struct Item {
  Action action;
  std::int32_t key = no_message;  // the last message before it in the program's order
  std::int32_t num_missing = 0;   // messages it needs
};

// Puts all items and messages in one linear order, as near to the program's as the format allows: there a pair is one
// item, a computation stands behind every message of its hop, also one whose content it does not read, and a send
// stands directly behind what makes it: an executor that issues a row in order would hold it back otherwise.
class Lineariser {
 public:
  explicit Lineariser(const Program& program)
      : program_(program),
        items_(program.ranks.size()),
        next_(items_.size(), 0),
        home_(program.layout, Home{}),
        messages_{PerCompute<std::int32_t>(program.layout, no_message),
                  PerCompute<std::int32_t>(program.layout, no_message)} {
    result_.name = program.schedule_name;
    result_.forward_only = program.forward_only;
    result_.ranks.resize(items_.size());
    for (RankId rank; rank.index() < items_.size(); rank = rank.next()) {
      collect_items(rank);
    }
    connect_messages();
  }

  CommsSchedule run() {
    for (RankId rank; rank.index() < items_.size(); rank = rank.next()) {
      offer_item(rank);
    }
    std::size_t emitted = 0;
    for (; !ready_.empty(); ++emitted) {
      const Entry entry = ready_.top();
      ready_.pop();
      if (entry.is_item) {
        emit_item(RankId(static_cast<std::size_t>(entry.subject)));
      } else {
        emit_message(MessageId(entry.subject));
      }
    }
    for (std::size_t rank = 0; rank < items_.size(); ++rank) {
      require(next_[rank] == items_[rank].size(), [&] {
        return fmt::format("csv-comms: rank {} is stuck at {}", rank, to_string(items_[rank][next_[rank]].action));
      });
    }
    return std::move(result_);
  }

 private:
  // Where (chunk, microbatch) is computed: items of its rank.
  struct Home {
    std::int32_t forward = no_message;
    std::int32_t backward = no_message;
  };
  struct Entry {
    std::int32_t key;
    bool is_item;  // behind the message of the same key
    std::int32_t subject;
    bool operator>(const Entry& other) const {
      return std::tie(key, is_item, subject) > std::tie(other.key, other.is_item, other.subject);
    }
  };

  void collect_items(RankId rank) {
    const RankProgram& steps = program_.ranks[rank.index()];
    std::vector<Item>& items = items_[rank.index()];
    std::int32_t last_message = no_message;
    bool second_half = false;
    for (const StepRef& ref : steps.order) {
      const auto index = static_cast<std::size_t>(ref.index);
      if (ref.comm) {
        last_message = std::max(last_message, steps.comm[index].message.value);
        continue;
      }
      const ComputeStep& step = steps.compute[index];
      if (second_half) {
        items.back().action.second = step.compute;
      } else {
        items.push_back({{step.compute, std::nullopt}, no_message, 0});
      }
      items.back().key = last_message;
      second_half = step.overlaps_next;
      Home& home = home_.at(step.compute.chunk, step.compute.microbatch);
      if (step.compute.op == Op::forward) {
        home.forward = static_cast<std::int32_t>(items.size()) - 1;
      } else if (step.compute.op != Op::backward_weight) {
        home.backward = static_cast<std::int32_t>(items.size()) - 1;
      }
    }
  }

  void connect_messages() {
    for (std::size_t i = 0; i < program_.messages.size(); ++i) {
      const Message& message = program_.messages[i];
      const Transfer& transfer = program_.transfer_of(MessageId(i));
      require(transfer.to_chunk == transfer.from_chunk.next(), [&] {
        return fmt::format("csv-comms: message {} goes from chunk {} to chunk {}", i, transfer.from_chunk.value,
                           transfer.to_chunk.value);
      });
      std::int32_t& here = message_over(transfer.from_chunk, message.microbatch, message.direction);
      require(here == no_message, [&] { return fmt::format("csv-comms: message {} is the second over its hop", i); });
      here = static_cast<std::int32_t>(i);
      ++consumer(MessageId(i)).num_missing;
    }
  }

  std::int32_t& message_over(ChunkId before, Microbatch microbatch, Direction direction) {
    return messages_[static_cast<std::size_t>(direction)].at(before, microbatch);
  }

  Item& consumer(MessageId id) {
    const Message& message = program_.messages[id.index()];
    const Transfer& transfer = program_.transfer_of(id);
    const bool forward = message.direction == Direction::forward;
    const Home& home = home_.at(forward ? transfer.to_chunk : transfer.from_chunk, message.microbatch);
    const std::int32_t item = forward ? home.forward : home.backward;
    return items_[program_.receiver(id).index()][static_cast<std::size_t>(item)];
  }

  void offer_item(RankId rank) {
    const std::size_t next = next_[rank.index()];
    if (next == items_[rank.index()].size()) return;
    const Item& item = items_[rank.index()][next];
    if (item.num_missing == 0) ready_.push({item.key, true, rank.value});
  }

  void emit_item(RankId rank) {
    const std::size_t next = next_[rank.index()]++;
    std::vector<Item>& items = items_[rank.index()];
    result_.ranks[rank.index()].push_back(items[next].action);
    for_each_compute(items[next].action, [&](const Compute& compute) {
      const bool forward = compute.op == Op::forward;
      if (compute.op == Op::backward_weight || (!forward && compute.chunk.value == 0)) return;
      const ChunkId before = forward ? compute.chunk : compute.chunk.previous();
      const std::int32_t id =
          message_over(before, compute.microbatch, forward ? Direction::forward : Direction::backward);
      if (id == no_message) return;
      ready_.push({id, false, id});
      if (next + 1 < items.size()) ++items[next + 1].num_missing;
    });
    offer_item(rank);
  }

  void emit_message(MessageId id) {
    const Message& message = program_.messages[id.index()];
    const Transfer& transfer = program_.transfer_of(id);
    const bool forward = message.direction == Direction::forward;
    const CommAction send{forward ? CommOp::send_forward : CommOp::send_backward,
                          forward ? transfer.from_chunk : transfer.to_chunk, message.microbatch};
    result_.ranks[program_.sender(id).index()].push_back(send);
    const RankId receiver = program_.receiver(id);
    result_.ranks[receiver.index()].push_back(partner_of(send));
    satisfy(receiver, consumer(id));
    // The sender goes on only now: next_ has not moved since it made the message.
    const RankId sender = program_.sender(id);
    std::vector<Item>& items = items_[sender.index()];
    if (next_[sender.index()] < items.size()) satisfy(sender, items[next_[sender.index()]]);
  }

  void satisfy(RankId rank, Item& item) {
    const bool is_next = &item == items_[rank.index()].data() + next_[rank.index()];
    if (--item.num_missing == 0 && is_next) offer_item(rank);
  }

  const Program& program_;
  std::vector<std::vector<Item>> items_;  // [rank]
  std::vector<std::size_t> next_;         // [rank]
  PerCompute<Home> home_;
  std::array<PerCompute<std::int32_t>, 2> messages_;  // [direction]: over the hop behind a chunk
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready_;
  CommsSchedule result_{{}, program_.layout, {}, false};
};

}  // namespace

CommsSchedule comms_schedule(const Program& program) {
  const Policy policy = program.routing.policy;
  if (policy == Policy::cached || policy == Policy::direct) {
    throw InputError(
        fmt::format("policy {} cannot be written as CSV with communication: it sends blocks past the next chunk, and "
                    "torch's SEND_F names only the next one; legal are standard, naive and relay",
                    to_string(policy)));
  }
  return Lineariser(program).run();
}

}  // namespace plumb

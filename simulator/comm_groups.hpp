// SPDX-License-Identifier: Apache-2.0
//
// comm_groups.hpp: which sends and receives of a rank go one after the other, and which go together.
//
// A stream is a list of groups; a group begins when all its members may and the group before it on the stream has
// ended. Only batched streams have groups of more than one. A group never holds two operations of which one waits for
// the other, nor two with a computation between them in the rank's order, so that a program made in a common order
// cannot deadlock in them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/network_model.hpp"

namespace plumb {

// One end of a message: twice its number, plus one at the receiver.
constexpr std::int32_t end_of(MessageId message, bool sending) { return 2 * message.value + (sending ? 0 : 1); }

class CommGroups {
 public:
  // Empty for CommStreams::unordered.
  CommGroups(const Program& program, CommStreams streams);

  std::size_t num_groups() const { return streams_of_.size(); }
  std::int32_t group_of(std::int32_t end) const { return group_of_[static_cast<std::size_t>(end)]; }
  // Ends of messages, in program order.
  std::span<const std::int32_t> members(std::int32_t group) const {
    const auto g = static_cast<std::size_t>(group);
    return {members_.data() + first_member_[g], members_.data() + first_member_[g + 1]};
  }
  // A stream's groups are numbered through.
  bool has_next(std::int32_t group) const {
    const auto g = static_cast<std::size_t>(group);
    return g + 1 < streams_of_.size() && streams_of_[g] == streams_of_[g + 1];
  }
  bool has_previous(std::int32_t group) const { return group > 0 && has_next(group - 1); }
  std::int32_t stream_of(std::int32_t group) const { return streams_of_[static_cast<std::size_t>(group)]; }

 private:
  void add_rank(const Program& program, const RankProgram& rank, CommStreams streams);
  void add_batches(const Program& program, const RankProgram& rank);
  void open_group(std::int32_t stream);
  void add_member(std::int32_t end);

  std::vector<std::int32_t> streams_of_;     // [group]
  std::vector<std::uint32_t> first_member_;  // [group + 1]
  std::vector<std::int32_t> members_;
  std::vector<std::int32_t> group_of_;  // [end]
  std::int32_t num_streams_ = 0;
};

}  // namespace plumb

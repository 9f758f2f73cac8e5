// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <random>
#include <string>

#include "cache/support/comms.hpp"
#include "cache/support/programs.hpp"
#include "plumb/cache/comms_program.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/schedule/named.hpp"
#include "support/catch.hpp"
#include "support/refusals.hpp"
#include "support/sanitized.hpp"

namespace plumb {
namespace {

using test::check_all;
using test::comms;
using test::Dice;
using test::faults_of;
using test::is_sanitized;

DepthMap standard_depth(const Layout& layout) {
  const int chunks = layout.num_chunks();
  return {chunks, chunks, DepthMap::even_cuts(chunks, chunks, chunks), Residual::standard};
}

// Nothing if the kind does not go with the layout.
std::optional<Schedule> named_schedule(ScheduleKind kind, const Layout& layout, std::optional<int> group = {},
                                       bool forward_only = false) {
  return test::if_legal(
      [&] { return make_schedule({.kind = kind, .group = group, .forward_only = forward_only}, layout); });
}

// Written, read back, checked under every model.
void require_accepted(const Program& program) {
  const CommsSchedule written = comms_schedule(program);
  const std::string text = write_comms_csv(written);
  const CommsSchedule read = read_comms_csv(text, written.name, written.layout);
  if (read.ranks != written.ranks || read.forward_only != written.forward_only) FAIL("not read as written");
  if (write_comms_csv(read) != text) FAIL("not written as read");
  const CommsCheck check = check_comms(read, all_channel_models());
  if (check.ok() && check.channels.size() == all_channel_models().size()) return;
  std::string unsafe;
  for (const ChannelVerdict& one : check.channels) {
    if (!one.safe()) unsafe += std::string(to_string(one.deadlock.model)) + " " + test::cycle_of(one.deadlock);
  }
  FAIL(faults_of(check) << unsafe << "\n" << text);
}

// The cuts of a depth map that has everything awkward: short blocks, empty chunks, cuts inside blocks.
DepthMap random_depth(Dice& dice, const Layout& layout) {
  const int sublayers = dice.roll(1, 3 * layout.num_chunks() + 4);
  std::vector<int> cuts;
  for (int c = 0; c + 1 < layout.num_chunks(); ++c) {
    cuts.push_back(dice.roll(0, sublayers));
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.push_back(sublayers);
  return {sublayers, dice.roll(1, sublayers), std::move(cuts)};
}

void require_all_accepted(const Schedule& schedule, const DepthMap& blocks) {
  INFO(schedule.name << " P" << schedule.layout.pp() << " V" << schedule.layout.vp() << " M"
                     << schedule.layout.microbatches());
  require_accepted(lower(schedule, standard_depth(schedule.layout), Policy::standard));
  for (const Policy policy : {Policy::naive, Policy::relay}) {
    INFO(to_string(policy));
    require_accepted(lower(schedule, blocks, policy));
  }
}

}  // namespace

TEST_CASE("a schedule of a standard residual is written with sends behind their makers", "[cache][comms]") {
  const Schedule schedule = one_f_one_b(Layout(2, 1, 2));
  const CommsSchedule written = comms_schedule(lower(schedule, standard_depth(schedule.layout), Policy::standard));
  CHECK(write_comms_csv(written) ==
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\r\n"
        "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\r\n");
  CHECK(written.layout == schedule.layout);
}

TEST_CASE("policies that send past the next chunk cannot be written as CSV", "[cache][comms]") {
  for (const Policy policy : {Policy::cached, Policy::direct}) {
    CHECK_THROWS_WITH(comms_schedule(test::small_program(policy)),
                      Catch::Matchers::Contains("standard, naive and relay") &&
                          Catch::Matchers::Contains(std::string(to_string(policy))));
  }
}

TEST_CASE("an overlapped pair stays one cell and its messages stand around it", "[cache][comms]") {
  const Schedule schedule = *named_schedule(ScheduleKind::dualpipe_v, Layout(2, 2, 4, Placement::vee));
  const CommsSchedule written = comms_schedule(lower(schedule, standard_depth(schedule.layout), Policy::standard));
  CHECK(computations_of(written).ranks == schedule.ranks);
  require_accepted(lower(schedule, standard_depth(schedule.layout), Policy::standard));
}

TEST_CASE("a hop without content has no tokens on either side and is noted", "[cache][comms]") {
  // Chunk 2 on rank 0 is empty and begins and ends where a block does; rank 1 has all blocks by then.
  const Layout layout(2, 2, 2);
  const DepthMap depth(4, 2, {2, 4, 4, 4});
  const CommsSchedule written = comms_schedule(lower(interleaved(layout, 2), depth, Policy::relay));
  const std::string text = write_comms_csv(written);
  INFO(text);
  CHECK(text.find("2SEND_F") == std::string::npos);
  CHECK(text.find("3RECV_F") == std::string::npos);
  CHECK(text.find("3SEND_B") == std::string::npos);
  const CommsCheck check = check_all(comms(text));
  CHECK(check.ok());
  CHECK(check.empty_hops == std::vector<ChunkId>{ChunkId(2)});
}

TEST_CASE("every named schedule is written, read back and found safe under every channel model", "[cache][comms]") {
  // Exhaustive up to P=6, V=4, M=2P with standard, naive and relay.
  const int max_pp = is_sanitized ? 3 : 6;
  const int max_vp = is_sanitized ? 2 : 4;
  if (is_sanitized) WARN("with a sanitizer: P <= 3 and V <= 2 instead of P <= 6 and V <= 4");
  Dice dice(51);
  int schedules = 0;
  for (const ScheduleKind kind : all_schedule_kinds()) {
    for (int pp = 1; pp <= max_pp; ++pp) {
      for (int vp = 1; vp <= max_vp; ++vp) {
        for (int m = 1; m <= 2 * pp; ++m) {
          const Layout layout(pp, vp, m, placement_of(kind));
          const std::optional<Schedule> schedule = named_schedule(kind, layout);
          if (!schedule) continue;
          ++schedules;
          require_all_accepted(*schedule, random_depth(dice, layout));
        }
      }
    }
  }
  CHECK(schedules > (is_sanitized ? 90 : 500));
}

TEST_CASE("larger schedules drawn at random are written, read back and found safe", "[cache][comms]") {
  const int wanted = is_sanitized ? 60 : 2000;
  if (is_sanitized) WARN("with a sanitizer: 60 schedules instead of 2000");
  Dice dice(52);
  for (int done = 0; done < wanted;) {
    const auto kinds = all_schedule_kinds();
    const ScheduleKind kind = kinds[static_cast<std::size_t>(dice.roll(0, static_cast<int>(kinds.size()) - 1))];
    const bool vee = placement_of(kind) == Placement::vee;
    const int pp = dice.roll(1, 12);
    const Layout layout(pp, vee ? 2 : dice.roll(1, 6), dice.roll(1, 4 * pp), placement_of(kind));
    const std::optional<int> group =
        takes_group(kind) && dice.roll(0, 1) == 1 ? std::optional(dice.roll(pp, 2 * pp)) : std::nullopt;
    const std::optional<Schedule> schedule = named_schedule(kind, layout, group, dice.roll(0, 9) == 0);
    if (!schedule) continue;
    ++done;
    INFO(schedule->name << " P" << pp << " V" << layout.vp() << " M" << layout.microbatches());
    switch (dice.roll(0, 2)) {
      case 0:
        require_accepted(lower(*schedule, standard_depth(layout), Policy::standard));
        break;
      case 1:
        require_accepted(lower(*schedule, random_depth(dice, layout), Policy::naive));
        break;
      default:
        require_accepted(lower(*schedule, random_depth(dice, layout), Policy::relay));
    }
  }
}

TEST_CASE("a file becomes a program that keeps the order of every row and is sound", "[cache][comms]") {
  for (const CommsSchedule& schedule : test::torch_schedules()) {
    INFO(schedule.name);
    const Program program = comms_program(schedule);
    for (const ProgramFault& fault : verify_program(program)) {
      FAIL_CHECK(fault.rank.value << " " << fault.position << " " << fault.token << ": " << fault.why);
    }
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      std::vector<std::string> expected;
      for (const CommsItem& item : schedule.ranks[rank]) {
        const CommAction* comm = std::get_if<CommAction>(&item);
        if (comm != nullptr && moves_data(comm->op)) expected.push_back(to_string(*comm));
      }
      std::vector<std::string> got;
      for (const CommStep& step : program.ranks[rank].comm) {
        const Message& message = program.messages[step.message.index()];
        const Transfer& transfer = program.transfer_of(step.message);
        const bool forward = message.direction == Direction::forward;
        const bool send = step.kind == CommKind::send;
        const ChunkId chunk = forward == send ? transfer.from_chunk : transfer.to_chunk;
        const CommOp op = send ? (forward ? CommOp::send_forward : CommOp::send_backward)
                               : (forward ? CommOp::receive_forward : CommOp::receive_backward);
        got.push_back(to_string(CommAction{op, chunk, message.microbatch}));
      }
      CHECK(got == expected);
    }
  }
}

TEST_CASE("what we write becomes a sound program again", "[cache][comms]") {
  for (const ScheduleKind kind : all_schedule_kinds()) {
    for (int pp = 1; pp <= 4; ++pp) {
      for (const int vp : {1, 2}) {
        const std::optional<Schedule> schedule = named_schedule(kind, Layout(pp, vp, 2 * pp, placement_of(kind)));
        if (!schedule) continue;
        INFO(schedule->name << " P" << pp << " V" << vp);
        const Program program =
            comms_program(comms_schedule(lower(*schedule, standard_depth(schedule->layout), Policy::standard)));
        for (const ProgramFault& fault : verify_program(program)) {
          FAIL_CHECK(fault.rank.value << " " << fault.position << " " << fault.token << ": " << fault.why);
        }
      }
    }
  }
}

TEST_CASE("a schedule that makes no sense is refused as a program", "[cache][comms]") {
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(comms_program(comms("0F0,0SEND_F0,0SEND_F0\n1RECV_F0,1F0\n")), Contains("twice"));
  CHECK_THROWS_WITH(comms_program(comms("0F0,1SEND_F0\n1RECV_F0,1F0\n")), Contains("belongs to rank 1"));
  CHECK_THROWS_WITH(comms_program(comms("0F0,0SEND_B0\n1RECV_F0,1F0\n")), Contains("no other rank"));
  CHECK_THROWS_WITH(comms_program(comms("0F0,0RECV_B0\n1RECV_F0,1F0\n")), Contains("forward-only"));
  CHECK_THROWS_WITH(comms_program(comms("0F0,0F0,0SEND_F0\n1RECV_F0,1F0\n")), Contains("second time"));
}

TEST_CASE("a damaged schedule is refused or checked but never breaks the checker", "[cache][comms]") {
  std::mt19937 random(13);
  const std::vector<CommsSchedule> originals = test::torch_schedules();
  int ok = 0;
  const int trials = is_sanitized ? 300 : 4000;
  for (int i = 0; i < trials; ++i) {
    const auto pick = [&](std::size_t size) { return std::uniform_int_distribution<std::size_t>(0, size - 1)(random); };
    CommsSchedule schedule = originals[pick(originals.size())];
    for (int edits = 1 + static_cast<int>(pick(3)); edits > 0; --edits) {
      std::vector<CommsItem>& row = schedule.ranks[pick(schedule.ranks.size())];
      std::vector<CommsItem>& other = schedule.ranks[pick(schedule.ranks.size())];
      if (row.empty() || other.empty()) continue;
      const std::size_t at = pick(row.size());
      switch (pick(4)) {
        case 0:
          row.erase(row.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        case 1:
          row.insert(row.begin() + static_cast<std::ptrdiff_t>(at), CommsItem(other[pick(other.size())]));
          break;
        default:
          std::swap(row[at], row[pick(row.size())]);
      }
    }
    const CommsCheck check = check_all(schedule);
    ok += check.ok() ? 1 : 0;
    // What hangs though sends never wait, because a row sends too late, is safe under no other model either.
    if (check.faults.empty() && check.cycle.empty()) {
      REQUIRE(check.channels.size() == all_channel_models().size());
      const bool hangs = test::verdict(check, ChannelModel::buffered).deadlock.deadlock;
      for (const ChannelVerdict& one : check.channels) {
        CHECK((!one.safe() || !hangs));
      }
    }
  }
  CHECK(ok > 0);
  CHECK(ok < trials);
}

}  // namespace plumb

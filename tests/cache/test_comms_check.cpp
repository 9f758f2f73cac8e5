// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "cache/support/comms.hpp"
#include "plumb/cache/comms_check.hpp"
#include "plumb/cache/comms_program.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/schedule/named.hpp"
#include "support/catch.hpp"
#include "support/refusals.hpp"

namespace plumb {
namespace {

using Catch::Matchers::Contains;
using test::check_all;
using test::comms;
using test::cycle_of;
using test::faults_of;
using test::verdict;

// The faults of a schedule that must have some.
std::string faults(std::string_view text) {
  const CommsCheck check = check_all(comms(text));
  CHECK_FALSE(check.ok());
  return faults_of(check);
}

std::string unsafe_models(const CommsCheck& check) {
  std::string names;
  for (const ChannelVerdict& one : check.channels) {
    if (!one.safe()) names += std::string(to_string(one.deadlock.model)) + " ";
  }
  return names;
}

CommsSchedule written(const Schedule& schedule) {
  const int chunks = schedule.layout.num_chunks();
  const DepthMap depth(chunks, chunks, DepthMap::even_cuts(chunks, chunks, chunks), Residual::standard);
  return comms_schedule(lower(schedule, depth, Policy::standard));
}

}  // namespace

TEST_CASE("torch's own lowered schedules are complete and safe under every channel model", "[cache][comms]") {
  const std::vector<CommsSchedule> schedules = test::torch_schedules();
  CHECK(schedules.size() == 45);
  for (const CommsSchedule& schedule : schedules) {
    INFO(schedule.name);
    const CommsCheck check = check_all(schedule);
    CHECK(faults_of(check).empty());
    CHECK(unsafe_models(check).empty());
    CHECK(check.channels.size() == all_channel_models().size());
    CHECK(check.empty_hops.empty());
    CHECK(check.ok());
  }
}

TEST_CASE("1F1B with receives directly before their consumers deadlocks where both directions share a queue",
          "[cache][comms]") {
  const CommsSchedule schedule = test::with_deferred_receives(written(one_f_one_b(Layout(2, 1, 2))));
  CHECK(write_comms_csv(schedule) ==
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\r\n"
        "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\r\n");
  const CommsCheck check = check_all(schedule);
  CHECK(check.faults.empty());
  CHECK_FALSE(check.ok());
  CHECK(cycle_of(verdict(check, ChannelModel::shared_fifo).deadlock) == "0:0SEND_F1 1:1SEND_B0 ");
  CHECK(cycle_of(verdict(check, ChannelModel::rendezvous).deadlock) == "0:0SEND_F1 1:1SEND_B0 ");
  CHECK(unsafe_models(check) == "shared-fifo rendezvous ");  // neighbours of one stream form a group
}

TEST_CASE("two opposite sends block each other unless sends are buffered or have a queue each", "[cache][comms]") {
  const CommsCheck check =
      check_all(comms("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"));
  for (const ChannelModel model : all_channel_models()) {
    const bool safe = model != ChannelModel::shared_fifo && model != ChannelModel::rendezvous;
    INFO(to_string(model) << " " << cycle_of(verdict(check, model).deadlock));
    CHECK(verdict(check, model).safe() == safe);
    CHECK(verdict(check, model).deadlock.cycle.size() == (safe ? 0 : 2));
  }
}

TEST_CASE("a send that stands behind a computation which needs it deadlocks under every model", "[cache][comms]") {
  const CommsCheck check = check_all(comms("0F0,0RECV_B0,0B0,0SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0\n"));
  CHECK(check.faults.empty());
  CHECK(check.channels.size() == all_channel_models().size());
  for (const ChannelVerdict& one : check.channels) {
    INFO(to_string(one.deadlock.model));
    CHECK(one.deadlock.deadlock);
    CHECK(one.deadlock.cycle.size() >= 2);
  }
  const std::string cycle = cycle_of(verdict(check, ChannelModel::buffered).deadlock);
  CHECK_THAT(cycle, Contains("0:0SEND_F0") && Contains("0:0B0") && Contains("1:1SEND_B0") && Contains("1:1F0"));
}

TEST_CASE("a receive that nobody serves is a fault and a deadlock of its own under every model", "[cache][comms]") {
  const CommsCheck check =
      check_all(comms("0F0,0SEND_F0,0RECV_B0,0B0\n"
                      "1RECV_F0,1F0,1B0\n"));
  CHECK(faults_of(check) == "row 0 column 2 0RECV_B0: nobody sends it: rank 1 has no 1SEND_B0\n");
  for (const ChannelModel model : all_channel_models()) {
    CHECK(verdict(check, model).deadlock.deadlock);
    CHECK(cycle_of(verdict(check, model).deadlock) == "0:0RECV_B0 ");
  }
}

TEST_CASE("a send that nobody receives is a fault and blocks unless sends are buffered", "[cache][comms]") {
  const CommsCheck check =
      check_all(comms("0F0,0SEND_F0,0B0\n"
                      "1RECV_F0,1F0,1B0,1SEND_B0\n"));
  CHECK_THAT(faults_of(check), Contains("row 1 column 3 1SEND_B0: nobody receives it: rank 0 has no 0RECV_B0\n"));
  CHECK_THAT(faults_of(check), Contains("row 0 column 2 0B0: its input has not been received: 0RECV_B0 is missing\n"));
  for (const ChannelModel model : all_channel_models()) {
    CHECK(verdict(check, model).deadlock.deadlock == (model != ChannelModel::buffered));
  }
}

TEST_CASE("communication in the wrong place is named with row and column", "[cache][comms]") {
  // The result does not exist yet.
  CHECK_THAT(faults("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
             Contains("row 0 column 0 0SEND_F0: what it sends does not exist yet"));
  // The input comes too late.
  CHECK_THAT(faults("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n"),
             Contains("row 1 column 0 1F0: its input has not been received: 1RECV_F0 stands after it"));
  // Twice.
  CHECK_THAT(faults("0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
             Contains("row 0 column 2 0SEND_F0: is there a second time"));
  // On the wrong rank.
  CHECK_THAT(faults("0F0,1SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
             Contains("row 0 column 1 1SEND_F0: chunk 1 belongs to rank 1"));
  // Beyond the ends.
  CHECK_THAT(faults("0F0,0SEND_F0,0RECV_B0,0B0,0SEND_B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
             Contains("row 0 column 4 0SEND_B0: chunk 0 is the first"));
  CHECK_THAT(faults("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_F0,1B0,1SEND_B0\n"),
             Contains("row 1 column 2 1SEND_F0: chunk 1 is the last"));
  // Between two chunks of one rank: the turn of a vee.
  CHECK_THAT(faults("0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0\n"
                    "1RECV_F0,1F0,1SEND_F0,2RECV_F0,2F0,2SEND_F0,2RECV_B0,2B0,1B0,1SEND_B0\n"),
             Contains("row 1 column 2 1SEND_F0: chunks 1 and 2 are both on rank 1"));
  // Gradients without any backward.
  CHECK_THAT(faults("0F0,0SEND_F0,0RECV_B0\n1RECV_F0,1F0,1SEND_B0\n"), Contains("no backward runs at all"));
}

TEST_CASE("the computations of a schedule with communication are checked and placed by their cell", "[cache][comms]") {
  CHECK_THAT(faults("0F0,0SEND_F0,0RECV_B0,0B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
             Contains("row 0 column 4 0B0: runs a second time"));
  CHECK_THAT(faults("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_B0\n"), Contains("row 1 column 3 1B0: is missing"));
  const CommsCheck check =
      check_all(comms("0F0,0SEND_F0,0RECV_B0,0I0,0W0\n"
                      "1RECV_F0,1I0,1SEND_B0,1W0,1F0\n"));
  CHECK_THAT(faults_of(check), Contains("row 1 column 4 1F0: this forward stands after its own backward"));
  CHECK(check.channels.empty());  // such a schedule is not run
}

TEST_CASE("computations that wait for each other are a cycle whatever the channels", "[cache][comms]") {
  CHECK(check_all(comms("0F0,0SEND_F0,2RECV_F0,2F0,2SEND_F0\n1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0\n")).ok());
  const CommsCheck stuck =
      check_all(comms("2RECV_F0,2F0,2SEND_F0,0F0,0SEND_F0\n"
                      "1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0\n"));
  CHECK_FALSE(stuck.ok());
  CHECK(stuck.faults.empty());
  REQUIRE(stuck.cycle.size() == 3);  // 2F0 waits for 1F0, that for 0F0, that for its turn behind 2F0
  CHECK(stuck.cycle[0].token == "2F0");
  CHECK(stuck.cycle[0].column == 1);
}

TEST_CASE("a file without any send or receive is told what it is", "[cache][comms]") {
  CHECK(faults("0F0,0F1,0B0,0B1,0REDUCE_GRAD\n1F0,1F1,1B0,1B1,1REDUCE_GRAD\n") ==
        "row 0 column 0 : no SEND and no RECV in the whole file; without UNSHARD, RESHARD and REDUCE_GRAD it is read "
        "as a schedule of computations only\n");
  CHECK(check_all(comms("0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD\n")).ok());  // one rank needs none
}

TEST_CASE("an unused hop is noted where a layout may have it and is a fault where none can", "[cache][comms]") {
  const std::string first = "0F0,0SEND_F0,2RECV_F0,2F0,2SEND_F0\n";
  const CommsCheck check = check_all(comms("0F0,0SEND_F0,2F0,2SEND_F0\n1RECV_F0,1F0,3RECV_F0,3F0\n"));
  CHECK(check.empty_hops == std::vector<ChunkId>{ChunkId(1)});
  CHECK(check.ok());
  // Into the first chunk of a rank.
  CHECK_THAT(faults("0F0,2RECV_F0,2F0,2SEND_F0\n1F0,1SEND_F0,3RECV_F0,3F0\n"),
             Contains("row 1 column 0 1F0: its input has not been received: 1RECV_F0 is missing"));
  // One microbatch of a used hop.
  CHECK_THAT(faults("0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F0,1F0,1F1\n"),
             Contains("row 0 column 3 0SEND_F1: nobody receives it") && Contains("1RECV_F1 is missing"));
}

TEST_CASE("parameters must be whole where they are used and reduced once at the end", "[cache][comms]") {
  CHECK_THAT(faults("0UNSHARD,0F0,0RESHARD,0B0\n"), Contains("row 0 column 3 0B0: stands after 0RESHARD"));
  CHECK_THAT(faults("0F0,0REDUCE_GRAD,0B0\n"), Contains("row 0 column 2 0B0: stands after 0REDUCE_GRAD"));
  CHECK_THAT(faults("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n"), Contains("row 0 column 3 0REDUCE_GRAD: is there a second"));
  CHECK_THAT(faults("0UNSHARD,0UNSHARD,0F0,0B0\n"), Contains("without a RESHARD between"));
  CHECK_THAT(faults("0UNSHARD,0F0,0B0,0RESHARD,0RESHARD\n"), Contains("without an UNSHARD between"));
  CHECK(check_all(comms("0UNSHARD,0F0,0RESHARD,0UNSHARD,0I0,0RESHARD,0W0,0REDUCE_GRAD\n")).ok());
}

TEST_CASE("receives in another order than their sends are wrong data where queues have no tags", "[cache][comms]") {
  const CommsCheck check =
      check_all(comms("0F0,0SEND_F0,0F1,0SEND_F1\n"
                      "1RECV_F1,1RECV_F0,1F0,1F1\n"));
  CHECK(check.faults.empty());
  CHECK_FALSE(check.ok());
  CHECK(verdict(check, ChannelModel::buffered).safe());
  for (const ChannelModel model : {ChannelModel::fifo_per_edge, ChannelModel::fifo_per_pair, ChannelModel::shared_fifo,
                                   ChannelModel::single_stream, ChannelModel::rendezvous}) {
    REQUIRE(verdict(check, model).mismatch);
    CHECK(verdict(check, model).mismatch->column == 0);
    CHECK(verdict(check, model).mismatch->why ==
          "gets what rank 0 sends as 0SEND_F0: both ends must use the queue in the same order");
  }
  // Of two hops that join the same ranks: wrong for a queue per pair, right for a queue per hop.
  const CommsCheck crossed =
      check_all(comms("0F0,0F1,2RECV_F0,2F0,0SEND_F0,0SEND_F1,2SEND_F0,2RECV_F1,2F1,2SEND_F1\n"
                      "1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0,1RECV_F1,1F1,1SEND_F1,3RECV_F1,3F1\n"));
  CHECK_FALSE(crossed.ok());
}

TEST_CASE("receives before their consumers deadlock by kind of schedule and channel", "[cache][comms]") {
  // How many of the named schedules on 2 to 4 ranks, with V up to 3 and M up to 8, are unsafe once every receive stands
  // directly before its consumer: all that alternate directions if these share a queue or posts block; where forwards
  // flow both ways between two ranks (vee) also with a queue per direction; none with a queue per hop.
  struct Row {
    int tried = 0;
    std::map<ChannelModel, int> unsafe;
  };
  std::map<ScheduleKind, Row> rows;
  for (const ScheduleKind kind : all_schedule_kinds()) {
    for (int pp = 2; pp <= 4; ++pp) {
      for (int vp = 1; vp <= 3; ++vp) {
        for (int m = 1; m <= 8; ++m) {
          const auto schedule = test::if_legal(
              [&] { return make_schedule({.kind = kind, .group = {}}, Layout(pp, vp, m, placement_of(kind))); });
          if (!schedule) continue;
          Row& row = rows[kind];
          ++row.tried;
          const CommsCheck check = check_all(test::with_deferred_receives(written(*schedule)));
          REQUIRE(check.faults.empty());
          for (const ChannelVerdict& one : check.channels) {
            row.unsafe[one.deadlock.model] += one.safe() ? 0 : 1;
          }
          const bool one_way_at_a_time = kind == ScheduleKind::gpipe || m == 1;
          if (!one_way_at_a_time && kind != ScheduleKind::looped_bfs) {
            INFO(to_string(kind) << " P" << pp << " V" << vp << " M" << m);
            CHECK_FALSE(verdict(check, ChannelModel::shared_fifo).safe());
            CHECK_FALSE(verdict(check, ChannelModel::rendezvous).safe());
          }
        }
      }
    }
  }
  for (auto& [kind, row] : rows) {
    INFO(to_string(kind) << " of " << row.tried << ": fifo-per-pair " << row.unsafe[ChannelModel::fifo_per_pair]
                         << ", single-stream " << row.unsafe[ChannelModel::single_stream]);
    CHECK(row.unsafe[ChannelModel::buffered] == 0);
    CHECK(row.unsafe[ChannelModel::fifo_per_edge] == 0);
  }
  CHECK(rows[ScheduleKind::gpipe].unsafe[ChannelModel::rendezvous] == 0);
  for (const ScheduleKind safe : {ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::looped_bfs}) {
    CHECK(rows[safe].unsafe[ChannelModel::fifo_per_pair] == 0);
  }
  for (const ScheduleKind unsafe : {ScheduleKind::zb_v, ScheduleKind::dualpipe_v, ScheduleKind::zb_h1}) {
    CHECK(rows[unsafe].unsafe[ChannelModel::fifo_per_pair] > 0);
  }
  CHECK(2 * rows[ScheduleKind::zb_v].unsafe[ChannelModel::fifo_per_pair] > rows[ScheduleKind::zb_v].tried);
  CHECK(10 * rows[ScheduleKind::zb_h1].unsafe[ChannelModel::fifo_per_pair] < 2 * rows[ScheduleKind::zb_h1].tried);
}

}  // namespace plumb

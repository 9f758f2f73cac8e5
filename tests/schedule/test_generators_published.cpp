// SPDX-License-Identifier: Apache-2.0
//
// Orders that other tools really run, as data files: see data/README.md.
#include <cstdio>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "plumb/schedule/check.hpp"
#include "plumb/schedule/comms_csv.hpp"
#include "plumb/schedule/compute_csv.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/schedule/named.hpp"
#include "support.hpp"

namespace plumb {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using test::data_file;
using test::input_error_of;

// Names of the data files in a folder that begin so, sorted.
std::set<std::string> files(const std::string& folder, const std::string& prefix) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(PLUMB_SCHEDULE_TEST_DATA) + "/" + folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix)) names.insert(folder + "/" + name);
  }
  return names;
}

TEST_CASE("the interleaved order equals every published order of Megatron", "[schedule]") {
  int compared = 0;
  for (const std::string& file : files("megatron", "mlm_")) {
    CAPTURE(file);
    int pp = 0, vp = 0, m = 0, group = 0;
    REQUIRE(std::sscanf(file.c_str(), "megatron/mlm_P%d_V%d_M%d_N%d.csv", &pp, &vp, &m, &group) == 4);
    const Schedule published = read_compute_csv(data_file(file), file);
    REQUIRE(published.layout == Layout(pp, vp, m));
    REQUIRE(interleaved(published.layout, group).ranks == published.ranks);
    REQUIRE(check_schedule(published).ok());
    ++compared;
  }
  CHECK(compared == 21);
}

// Compares every data file of one torch class with the schedule of that name; returns how many there were.
int compare_with_torch(const std::string& prefix, const ScheduleRequest& request) {
  int compared = 0;
  for (const std::string& file : files("torch", prefix + "_P")) {
    if (file.find("_compute.csv") == std::string::npos) continue;
    CAPTURE(file);
    int pp = 0, vp = 0, m = 0;
    REQUIRE(std::sscanf(file.c_str() + file.find("_P"), "_P%d_V%d_M%d_", &pp, &vp, &m) == 3);
    const Schedule published = read_compute_csv(data_file(file), file);
    REQUIRE(published.layout == Layout(pp, vp, m, vp == 1 ? published.layout.placement() : placement_of(request.kind)));
    REQUIRE(make_schedule(request, published.layout).ranks == published.ranks);
    REQUIRE(check_schedule(published).ok());
    REQUIRE(read_compute_csv(write_compute_csv(published), file).ranks == published.ranks);
    ++compared;
  }
  return compared;
}

TEST_CASE("every published compute order of torch is ours but for blanks", "[schedule]") {
  const auto by_torch = [](ScheduleKind kind) { return ScheduleRequest{.kind = kind, .group_rule = GroupRule::torch}; };
  CHECK(compare_with_torch("Interleaved1F1B", by_torch(ScheduleKind::interleaved)) == 12);
  CHECK(compare_with_torch("InterleavedZeroBubble", by_torch(ScheduleKind::zb_h1)) == 12);
  CHECK(compare_with_torch("LoopedBFS", {.kind = ScheduleKind::looped_bfs}) == 12);
  CHECK(compare_with_torch("ZBVZeroBubble", {.kind = ScheduleKind::zb_v}) == 6);
  CHECK(compare_with_torch("DualPipeV", {.kind = ScheduleKind::dualpipe_v}) == 3);
  std::size_t all = 0;
  for (const std::string& file : files("torch", ""))
    all += file.find("_compute.csv") == std::string::npos ? 0U : 1U;
  CHECK(all == 12 + 12 + 12 + 6 + 3);
}

TEST_CASE("torch's published GPipe order is ours", "[schedule]") {
  int compared = 0;
  for (const std::string& file : files("torch", "GPipe_")) {
    CAPTURE(file);
    const Schedule published = computations_of(read_comms_csv(data_file(file), file));
    REQUIRE(gpipe(published.layout).ranks == published.ranks);
    REQUIRE(check_schedule(published).ok());
    ++compared;
  }
  CHECK(compared == 4);
}

TEST_CASE("torch's published 1F1B order is refused for the numbers of its last rank and for nothing else",
          "[schedule]") {
  int refused = 0;
  for (const std::string& file : files("torch", "1F1B_")) {
    CAPTURE(file);
    int pp = 0, m = 0;
    REQUIRE(std::sscanf(file.c_str(), "torch/1F1B_P%d_V1_M%d_", &pp, &m) == 2);
    const std::string text = data_file(file);
    const std::string why = fmt::format(
        "the forwards of chunk {} are numbered 1..{} instead of 0..{}: torch's published pipeline_order of "
        "1F1B is off by one like that on its last rank",
        pp - 1, m, m - 1);

    // Without a layout one microbatch more is inferred, and the check tells.
    Schedule published = computations_of(read_comms_csv(text, file));
    REQUIRE(published.layout == Layout(pp, 1, m + 1));
    const ScheduleCheck check = check_schedule(published);
    REQUIRE(check.faults.size() == 1);
    CHECK(check.faults[0].rank == RankId(pp - 1));
    CHECK(check.faults[0].column == 0);
    CHECK(check.faults[0].token == fmt::format("{}F1", pp - 1));
    CHECK_THAT(check.faults[0].why, StartsWith(why));
    CHECK_THAT(input_error_of([&] { require_legal(published); }), Contains(why));

    // With the true layout the reader tells.
    CHECK_THAT(
        input_error_of([&] { (void)read_comms_csv(text, file, Layout(pp, 1, m)); }),
        StartsWith(fmt::format("{}: row {} (rank {}), column 1: {}F1: ", file, pp, pp - 1, pp - 1)) && Contains(why));

    for (Action& action : published.ranks.back())
      action.first.microbatch.value -= action.first.op == Op::forward ? 1 : 0;
    published.layout = Layout(pp, 1, m);
    CHECK(check_schedule(published).ok());
    CHECK(published.ranks == one_f_one_b(published.layout).ranks);
    ++refused;
  }
  CHECK(refused == 4);
}

TEST_CASE("a compute-only reader points at the communication in a published order", "[schedule]") {
  const std::string text = data_file("torch/1F1B_P4_V1_M8_pipeline_order_ASIS.csv");
  CHECK_THAT(input_error_of([&] { (void)read_compute_csv(text, "order.csv"); }),
             Contains("order.csv: row 1 (rank 0), column 17") && Contains("REDUCE_GRAD is not a computation"));
}

}  // namespace
}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// Orders that other tools really run, as data files: see data/README.md.
#include <cstdio>
#include <filesystem>
#include <set>

#include "plumb/schedule/check.hpp"
#include "plumb/schedule/compute_csv.hpp"
#include "plumb/schedule/generators.hpp"
#include "support.hpp"

namespace plumb {
namespace {

using Catch::Matchers::Contains;
using test::data_file;
using test::input_error_of;
using test::makespan;

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

TEST_CASE("the interleaved order equals the published orders of torch but for blanks", "[schedule]") {
  int compared = 0;
  for (const std::string& file : files("torch", "Interleaved1F1B_")) {
    CAPTURE(file);
    int pp = 0, vp = 0, m = 0;
    REQUIRE(std::sscanf(file.c_str(), "torch/Interleaved1F1B_P%d_V%d_M%d_", &pp, &vp, &m) == 3);
    const Schedule published = read_compute_csv(data_file(file), file);
    REQUIRE(published.layout == Layout(pp, vp, m));
    const int rounds = std::max(1, m / pp);  // torch deals the microbatches to equal groups
    REQUIRE(interleaved(published.layout, m / rounds).ranks == published.ranks);
    ++compared;
  }
  CHECK(compared == 6);
}

TEST_CASE("the breadth-first order equals the published orders of torch but for blanks", "[schedule]") {
  int compared = 0;
  for (const std::string& file : files("torch", "LoopedBFS_")) {
    CAPTURE(file);
    const Schedule published = read_compute_csv(data_file(file), file);
    REQUIRE(breadth_first(published.layout).ranks == published.ranks);
    ++compared;
  }
  CHECK(compared == 12);
}

TEST_CASE("published zero-bubble and overlapped schedules are read and found legal", "[schedule]") {
  int compared = 0;
  for (const std::string prefix : {"InterleavedZeroBubble_", "ZBVZeroBubble_", "DualPipeV_"}) {
    for (const std::string& file : files("torch", prefix)) {
      CAPTURE(file);
      const Schedule published = read_compute_csv(data_file(file), file);
      const bool vee = prefix != "InterleavedZeroBubble_";
      REQUIRE(published.layout.placement() == (vee ? Placement::vee : Placement::loop));
      REQUIRE(check_schedule(published).ok());
      REQUIRE_NOTHROW(require_legal(published));
      REQUIRE(makespan(published).has_value());
      REQUIRE(read_compute_csv(write_compute_csv(published), file).ranks == published.ranks);
      ++compared;
    }
  }
  CHECK(compared == 21);
}

TEST_CASE("a published order with wrong microbatch numbers is refused", "[schedule]") {
  std::string text = data_file("torch/1F1B_P4_V1_M8_pipeline_order_ASIS.csv");
  CHECK_THAT(input_error_of([&] { (void)read_compute_csv(text, "order.csv"); }),
             Contains("order.csv: row 1 (rank 0), column 17") && Contains("REDUCE_GRAD is not a computation"));
  for (const std::string token : {"0", "1", "2", "3"}) {
    text.erase(text.find("," + token + "REDUCE_GRAD"), token.size() + 12);
  }
  const ScheduleCheck check = check_schedule(read_compute_csv(text, "order.csv"));
  REQUIRE_FALSE(check.ok());
  CHECK(check.faults.front().why == "is missing");
}

}  // namespace
}  // namespace plumb

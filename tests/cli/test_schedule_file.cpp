// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "cli/answer.hpp"
#include "support/catch.hpp"

using namespace plumb::test;
using nlohmann::json;

namespace {

// A file of 2 ranks, 2 virtual stages, 4 microbatches.
std::string written(const std::string& format, const std::string& schedule) {
  const Run run = run_plumb("plan --pp 2 --vp 2 --microbatches 4 --format " + format + " --schedule " + schedule);
  REQUIRE(run.exit_code == 0);
  scratch_file("own.csv", run.out);
  return " --schedule own.csv";
}

}  // namespace

TEST_CASE("a schedule of one's own is planned and simulated like the named one that it is", "[cli]") {
  const std::string name = GENERATE("interleaved", "zb-h1", "zb-v", "dualpipe-v");
  const std::string file = written("csv", name);
  CAPTURE(name);
  const std::string layout = " --pp 2 --vp 2 --microbatches 4 --schedule " + name;
  for (const std::string flags : {" --layers 8 --cache cached", " --layers 8 --cache relay"}) {
    const json own = answer("sim" + file + flags);
    const json named = answer("sim" + layout + flags);
    CHECK(own.at("step_us") == named.at("step_us"));
    CHECK(own.at("ranks") == named.at("ranks"));
  }
  CHECK(run_plumb("plan --format csv" + file).out == run_plumb("plan --format csv" + layout).out);
}

TEST_CASE("a file with communication is simulated as it stands", "[cli]") {
  const json plain = answer("sim --layers 8 --residual standard" + written("csv", "zb-v"));
  const json comms = answer("sim --layers 8 --residual standard" + written("csv-comms", "zb-v"));
  CHECK(comms.at("traffic") == plain.at("traffic"));
  for (const auto& entry : std::filesystem::directory_iterator(PLUMB_TORCH_COMMS_DATA)) {
    CAPTURE(entry.path().filename());
    const json torch = answer("sim --schedule " + entry.path().string());
    CHECK(torch.at("step_us").get<double>() > 0);
  }
}

TEST_CASE("torch's files of computations that end with REDUCE_GRAD are read as computations", "[cli]") {
  const std::string torch = PLUMB_TORCH_DATA;
  const json gpipe = answer("check " + torch + "/GPipe_P4_V1_M8_pipeline_order_ASIS.csv");
  CHECK(gpipe.at("ok") == true);
  CHECK(gpipe.at("channels_safe").size() == 6);
  const std::string file = " --schedule " + torch + "/GPipe_P4_V1_M8_pipeline_order_ASIS.csv";
  CHECK(fine("plan --format csv" + file) == fine("plan --format csv --pp 4 --microbatches 8 --schedule gpipe"));
  const Run off_by_one = run_plumb("check " + torch + "/1F1B_P4_V1_M8_pipeline_order_ASIS.csv");
  CHECK(off_by_one.exit_code == 1);
  CHECK(off_by_one.out.find("no SEND and no RECV: read as computations alone") != std::string::npos);
}

TEST_CASE("what does not go with a schedule of one's own is refused in one line", "[cli]") {
  const std::string file = written("csv-comms", "interleaved");
  require_refused("sim --layers 8" + file, "none for blocks: give --residual standard");
  require_refused("plan --pp 3" + file, "has 2 ranks, not the 3 of --pp");
  require_refused("plan --microbatches 8" + file, "has 4 microbatches, not the 8 of --microbatches");
  require_refused("plan --group 2" + file, "--group does not go with --schedule own.csv");
  require_refused("volume --layers 8" + file, "goes with plumb plan and plumb sim");
  require_refused("plan --output own.csv" + file, "name the same file");
  scratch_file("bad.csv", "0F0,0B0\n1F0,1F0,1B0\n");
  require_refused("sim --schedule bad.csv", "rank 1 1F0");
  require_refused("sim --schedule bad.csv", "'plumb check bad.csv' tells all");
  scratch_file("stuck.csv", "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_B0,1B0\n");
  require_refused("sim --schedule stuck.csv", "rank 1 1SEND_B0: what it sends does not exist yet");
}

TEST_CASE("a whole backward says what its parts take", "[cli]") {
  const auto step = [](const std::string& times) {
    return answer("plan --pp 4 --microbatches 8 --compare 1f1b,zb-h1 --action-us " + times).at("schedules");
  };
  CHECK(step("F=10,B=20") == step("F=10,I=10,W=10"));
  CHECK(step("F=10,B=20,I=15") == step("F=10,I=15,W=5"));
  require_refused("plan --pp 2 --action-us F=10,B=20,W=30", "W is a part of B and takes longer than it; legal: 0..20");
}

TEST_CASE("a comparison says which named schedules are beyond the limit of memory", "[cli]") {
  const std::string table = fine("plan --pp 2 --vp 2 --microbatches 4 --compare auto,zb-v,gpipe --memory-chunks 3");
  CHECK(table.find("zb-v holds 4 chunks of V = 2 on a rank, more than --memory-chunks 3") != std::string::npos);
  CHECK(table.find("gpipe holds 8 chunks of V = 2 on a rank") != std::string::npos);
  CHECK(table.find("auto holds") == std::string::npos);
}

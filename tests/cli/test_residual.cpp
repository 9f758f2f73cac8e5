// SPDX-License-Identifier: Apache-2.0
// --residual and --compare-residual.
#include <algorithm>

#include "cli/answer.hpp"
#include "support/catch.hpp"

using nlohmann::json;
using plumb::test::answer;
using plumb::test::require_refused;
using plumb::test::Run;
using plumb::test::run_plumb;

namespace {

const json& design(const json& answer, const std::string& name) {
  for (const json& each : answer.at("designs")) {
    if (each.at("residual") == name) return each;
  }
  FAIL(name << " is missing");
  return answer;
}

}  // namespace

TEST_CASE("a comparison of designs is refused in its own flag's words", "[cli]") {
  for (const char* command :
       {"sim --layers 4 --pp 2 --compare-residual ", "volume --layers 4 --pp 2 --compare-residual "}) {
    for (const char* designs : {"foo", "hc:99", "hc:x", "standard,foo", "mhc:2+foo"}) {
      const Run run = run_plumb(std::string(command) + designs);
      INFO(command << designs << "\n" << run.err);
      CHECK(run.exit_code == 2);
      CHECK(run.err.starts_with("config: --compare-residual '"));
      CHECK(run.err.find(" --residual") == std::string::npos);
    }
    require_refused(std::string(command) + "all --residual hc:4", "does not go with --compare-residual");
  }
}

TEST_CASE("every residual design is counted, and every count is its formula", "[cli]") {
  const json all = answer("volume --pp 4 --vp 2 --layers 16 --block-layers 4 --compare-residual all");
  REQUIRE(all.at("designs").size() == 9);
  for (const json& each : all.at("designs")) {
    for (const auto& [policy, row] : each.at("policies").items()) {
      INFO(each.at("residual") << " " << policy);
      CHECK(row.at("equals_formula") == true);
      CHECK(row.at("tensors") == row.at("units").get<int>() * each.at("tensors_per_unit").get<int>());
    }
  }
  CHECK(design(all, "mhc:4").at("policies").at("standard").at("tensors") == 4 * 7);
  CHECK(design(all, "deepnet").at("policies") == design(all, "standard").at("policies"));
  const json& blocks = design(all, "attnres-block").at("policies").at("cached");
  CHECK(design(all, "mhc:4+attnres-block").at("policies").at("cached").at("forward_bytes") ==
        4 * blocks.at("forward_bytes").get<double>());
  // A design alone is what it is beside others.
  const json alone = answer("volume --pp 4 --vp 2 --layers 16 --residual denseformer");
  CHECK(alone.at("residual") == "denseformer");
  CHECK(alone.at("naive").at("units") == design(all, "denseformer").at("policies").at("naive").at("units"));
  const json streams = answer("volume --pp 4 --vp 2 --layers 16 --residual hc:3");
  CHECK(streams.at("tensors_per_unit") == 3);
  CHECK(streams.at("standard").at("units") == 7);
  CHECK(streams.at("forward_bytes_per_unit") == 3 * alone.at("forward_bytes_per_unit").get<double>());
  CHECK(streams.at("checks").at("standard_equals_exact_minimum") == true);
}

TEST_CASE("on 16 ranks K3 sends 79 tensors for 15 without a cache, and with one too at V = 1", "[cli]") {
  const auto policies = [](const std::string& vp, const std::string& name) {
    const json all = answer("volume --model kimi-k3 --pp 16 --vp " + vp + " --compare-residual standard,attnres-block");
    return design(all, name).at("policies");
  };
  CHECK(policies("1", "standard").at("standard").at("tensors") == 15);
  CHECK(policies("1", "attnres-block").at("naive").at("tensors") == 79);
  CHECK(policies("1", "attnres-block").at("relay").at("tensors") == 79);
  CHECK(policies("2", "standard").at("standard").at("tensors") == 31);
  CHECK(policies("2", "attnres-block").at("naive").at("tensors") == 167);
  CHECK(policies("2", "attnres-block").at("cached").at("tensors") == 123);
}

TEST_CASE("one step of each residual design under the same order and links", "[cli]") {
  const std::string layout = "sim --pp 4 --vp 2 --layers 16 --hop-GBps 50 ";
  const json rows = answer(layout + "--block-layers 4 --compare-residual all");
  for (const json& row : rows.at("designs"))
    CHECK(row.at("traffic_equals_formula") == true);
  CHECK(design(rows, "standard").at("overhead_over_standard") == 0.0);
  CHECK(design(rows, "deepnet").at("step_us") == design(rows, "standard").at("step_us"));
  CHECK(design(rows, "hc:4").at("step_us") > design(rows, "standard").at("step_us"));
  CHECK(design(rows, "hc:4").at("bytes_per_step") == 4 * design(rows, "standard").at("bytes_per_step").get<double>());
  CHECK(design(rows, "denseformer").at("cache") == "cached");
  const json shared = answer(layout + "--compare-residual hc:4 --sharing fair");
  CHECK(shared.at("designs").at(0).at("step_us") == answer(layout + "--residual hc:4 --sharing fair").at("step_us"));
  // --unit-us is of a tensor: four of a millisecond are a value of four.
  const std::string slow = "sim --pp 4 --vp 2 --layers 16 --hop-us 0 --unit-us ";
  CHECK(answer(slow + "1000 --residual hc:4").at("step_us") == answer(slow + "4000 --residual standard").at("step_us"));
  const json single = answer(layout + "--residual hc:4");
  CHECK(single.at("step_us") == design(rows, "hc:4").at("step_us"));
  // With a cluster the reads and writes of the design take time as well.
  const std::string linear = "sim --pp 3 --microbatches 3 --model kimi-linear-48b --block-layers 3 --cluster h100 ";
  const json costed = answer(linear + "--compare-residual deepnet,mhc:4,muddformer,attnres-block");
  CHECK(design(costed, "deepnet").at("overhead_over_standard") == 0.0);
  for (const char* name : {"mhc:4", "muddformer", "attnres-block"})
    CHECK(design(costed, name).at("overhead_over_standard") > 0.01);
}

TEST_CASE("designs that nothing runs are planned", "[cli]") {
  CHECK(run_plumb("plan --pp 2 --layers 4 --residual mhc:4").out.find("mhc:4: 4 tensors per hop") != std::string::npos);
  CHECK(run_plumb("plan --pp 2 --layers 4 --residual muddformer --format csv-comms --cache relay").exit_code == 0);
}

TEST_CASE("residual designs that cannot be are refused with what is legal", "[cli]") {
  const std::string volume = "volume --pp 2 --layers 8 ";
  require_refused(volume + "--residual mudformer", "did you mean 'muddformer'?");
  require_refused(volume + "--residual hc:0", "1 to 64");
  require_refused(volume + "--residual denseformer:4x5", "--block-layers K");
  require_refused(volume + "--residual mhc:4 --block-layers 2", "--block-layers does not go with --residual mhc:4");
  require_refused("volume --sublayers 7 --residual denseformer", "nearest is 8");
  require_refused("sim --layers 8 --residual hc:4 --cache naive", "--cache does not go with --residual hc:4");
  require_refused("sim --layers 8 --residual hc:4 --compare-cache", "no blocks to route");
  require_refused(volume + "--compare-residual hc:4,hc:4", "twice");
  require_refused(volume + "--compare-residual hc:4,", "legal are");
  require_refused(volume + "--compare-residual all --residual hc:4", "does not go with --compare-residual");
  require_refused(volume + "--compare-residual hc:4,deepnet --block-layers 2", "names none");
  require_refused("sim --layers 8 --compare-residual hc:4,deepnet --cache naive", "none of the designs");
  require_refused("sim --layers 8 --compare-residual all --trace t.json", "--trace does not go");
  require_refused("sim --layers 8 --compare-residual all --launch-us 3", "--launch-us goes with --sharing fair");
  require_refused("sim --layers 8 --compare-residual all --schedule auto", "--schedule auto does not go");
  require_refused("plan --layers 8 --compare-residual all", "compare-residual");
}

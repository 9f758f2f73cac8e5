// SPDX-License-Identifier: Apache-2.0
// The keys and numbers that scripts of others rely on.
#include <fmt/format.h>

#include "cli/answer.hpp"
#include "support/catch.hpp"

using nlohmann::json;
using plumb::test::answer;
using plumb::test::Run;
using plumb::test::run_plumb;
using plumb::test::scratch_file;

namespace {

const std::string k3_layout = " --model kimi-k3 --pp 8 --vp 4";

}  // namespace

TEST_CASE("volume of Kimi K3 on 8 ranks x 4 virtual stages is 167 naive and 77 otherwise", "[cli]") {
  const json volume = answer("volume" + k3_layout);
  CHECK(volume.at("naive").at("units") == 167);
  for (const char* policy : {"relay", "cached", "direct"}) {
    CHECK(volume.at(policy).at("units") == 77);
    CHECK(volume.at("checks").at(std::string(policy) + "_equals_exact_minimum") == true);
  }
  CHECK(volume.at("formula").at("exact_minimum_units") == 77);
  CHECK(volume.at("formula").at("aligned") == false);
  CHECK(volume.at("formula").at("blocks_per_chunk") == 0.25);
  CHECK(volume.at("checks").at("naive_equals_paper").is_null());
  CHECK(volume.at("checks").at("backward_equals_forward") == true);
  CHECK(volume.at("forward_bytes_per_unit") == 58720256);
  CHECK(volume.at("backward_bytes_per_unit") == 117440512);
  const json& layout = volume.at("layout");
  CHECK(layout.at("chunks") == 32);
  CHECK(layout.at("sublayers") == 186);
  CHECK(layout.at("block_sublayers") == 24);
  CHECK(layout.at("blocks") == 8);
  CHECK(layout.at("placement") == "loop");
  CHECK(volume.at("relay").at("hops").size() == 31);
  int urgent = 0;
  int units = 0;
  for (const json& hop : volume.at("cached").at("hops")) {
    urgent += hop.at("urgent_units").get<int>();
    units += hop.at("units").get<int>();
  }
  CHECK(units == 77);
  CHECK(urgent == 32);  // 24 partials and one hop for each of b_0..b_7; b_8 closes in the last chunk
}

TEST_CASE("the full Hugging Face file gives the preset's numbers, nested text_config included", "[cli]") {
  const json preset = answer("volume" + k3_layout);
  const json file = answer("volume --pp 8 --vp 4 --model " PLUMB_CLI_TEST_DATA "/kimi-k3.config.json");
  CHECK(preset == file);
  // Without a block size it is an ordinary residual stream, and blocks must be asked for with their length.
  const std::string no_blocks =
      "volume --pp 2 --vp 2 --model " PLUMB_CLI_TEST_DATA "/kimi-linear-48b-a3b-instruct.config.json";
  CHECK(answer(no_blocks) == answer("volume --pp 2 --vp 2 --model kimi-linear-48b --residual standard"));
  CHECK(run_plumb(no_blocks + " --residual attnres-block").err.find("attn_res_block_size") != std::string::npos);
  const json filled = answer("volume --pp 2 --vp 2 --block-layers 3 --model " PLUMB_CLI_TEST_DATA
                             "/kimi-linear-48b-a3b-instruct.config.json");
  CHECK(filled == answer("volume --pp 2 --vp 2 --model kimi-linear-48b"));
  CHECK(filled.at("layout").at("blocks") == 9);
}

TEST_CASE("sublayers are twice the decoder layers and the automatic block length of 93 layers is 12", "[cli]") {
  const json layout = answer("volume --layers 93").at("layout");
  CHECK(layout.at("sublayers") == 186);
  CHECK(layout.at("block_sublayers") == 24);
}

TEST_CASE("an aligned layout reproduces the paper's naive count", "[cli]") {
  const json volume = answer("volume --pp 8 --vp 4 --sublayers 64 --block 2");
  CHECK(volume.at("formula").at("aligned") == true);
  CHECK(volume.at("formula").at("naive_paper_units") == 496);
  CHECK(volume.at("formula").at("cached_paper_units") == 220);
  CHECK(volume.at("formula").at("exact_minimum_units") == 203);
  CHECK(volume.at("naive").at("units") == 527);
  CHECK(volume.at("naive").at("peak_hop_units") == 32);
  CHECK(volume.at("checks").at("naive_equals_paper") == true);
}

TEST_CASE("a plan survives the way through its files", "[cli]") {
  const std::string layout = " --pp 4 --vp 2 --microbatches 8 --sublayers 16 --block 3";
  const Run csv = run_plumb("plan" + layout + " --format csv");
  REQUIRE(csv.exit_code == 0);
  scratch_file("plan.csv", csv.out);
  CHECK(answer("check plan.csv").at("ok") == true);
  for (const char* policy : {"naive", "relay", "cached", "direct"}) {
    const Run program = run_plumb("plan" + layout + " --format json --cache " + policy);
    REQUIRE(program.exit_code == 0);
    scratch_file("plan.json", program.out);
    const json check = answer("check plan.json");
    CHECK(check.at("ok") == true);
    CHECK(check.at("deadlock").is_null());
    CHECK(check.at("channels_safe").size() == 6);
  }
}

TEST_CASE("every schedule by name is planned, checked and simulated", "[cli]") {
  for (const std::string name :
       {"1f1b", "gpipe", "interleaved", "looped-bfs", "zb-h1", "zb-v", "dualpipe-v", "v-half", "v-min"}) {
    const bool single = name == "1f1b" || name == "gpipe";
    const std::string flags =
        std::string(" --pp 4 --microbatches 8 --vp ") + (single ? "1" : "2") + " --schedule " + name;
    const Run csv = run_plumb("plan --format csv" + flags);
    INFO(name << "\n" << csv.err);
    REQUIRE(csv.exit_code == 0);
    scratch_file("named.csv", csv.out);
    CHECK(answer("check named.csv").at("ok") == true);
    const json sim = answer("sim --sublayers 16 --block 3" + flags);
    CHECK(sim.at("checks").at("traffic_equals_formula") == true);
  }
}

TEST_CASE("the placement is the schedule's own where none is given", "[cli]") {
  CHECK(answer("volume --pp 4 --vp 2 --sublayers 16 --schedule zb-v").at("layout").at("placement") == "vee");
  CHECK(answer("volume --pp 4 --vp 2 --sublayers 16").at("layout").at("placement") == "loop");
}

TEST_CASE("groups follow the rule asked for", "[cli]") {
  const auto plan = [](const std::string& flags) {
    return run_plumb("plan --pp 2 --vp 2 --microbatches 5 --format csv " + flags).out;
  };
  CHECK(plan("--group 3").starts_with("0F0,0F1,0F2,2F0,2F1,2F2,2B0"));
  CHECK(plan("--group-rule megatron --group 3") == plan("--group 3"));
  CHECK(run_plumb("plan --pp 4 --vp 2 --microbatches 10 --format csv --group-rule torch").out ==
        run_plumb("plan --pp 4 --vp 2 --microbatches 10 --format csv --group 5").out);
}

TEST_CASE("automatic cuts send less than even ones and make no chunk heavier", "[cli]") {
  const json volume = answer("volume" + k3_layout + " --cuts auto");
  CHECK(volume.at("cached").at("units") == 75);
  int before = 0;
  for (const int cut : volume.at("layout").at("cuts")) {
    CHECK(cut - before <= 6);
    before = cut;
  }
}

TEST_CASE("a schedule that cannot run is answered with no and exit code 1", "[cli]") {
  const Run run = run_plumb("check - --json", "0F0,0B0\r\n1B0,1F0\r\n");
  CHECK(run.exit_code == 1);
  const json check = json::parse(run.out);
  CHECK(check.at("ok") == false);
  CHECK(check.at("errors").at(0).at("row") == 1);
  CHECK(check.at("errors").at(0).at("token") == "1F0");
  CHECK(run.reason() == "config");
}

TEST_CASE("a schedule without backwards is called forward only", "[cli]") {
  const Run run = run_plumb("check -", "0F0,0F1\r\n1F0,1F1\r\n");
  CHECK(run.exit_code == 0);
  CHECK(run.out.find("forward only") != std::string::npos);
}

TEST_CASE("sim prints the promised keys and its traffic equals the formula", "[cli]") {
  const json sim = answer("sim" + k3_layout + " --unit-us 100 --hop-us 0 --grad-wire storage --microbatches 32");
  CHECK(sim.at("step_us") == Approx(411400));
  for (const char* key : {"warmup", "steady", "cooldown", "waiting"}) {
    CHECK(sim.at("bubble_us").contains(key));
  }
  CHECK(sim.contains("bubble_over_step"));
  CHECK(sim.contains("bubble_over_ideal"));
  REQUIRE(sim.at("ranks").size() == 8);
  for (const char* key : {"rank", "busy_us", "idle_us", "exposed_comm_us", "peak_activation_chunks",
                          "peak_resident_units", "peak_bytes"}) {
    CHECK(sim.at("ranks").at(0).contains(key));
  }
  CHECK(sim.at("traffic").at("forward_units_per_microbatch") == 77);
  CHECK(sim.at("traffic").at("backward_units_per_microbatch") == 77);
  CHECK(sim.at("traffic").at("bytes_per_step") == 32LL * 77 * 2 * 58720256);
  CHECK(sim.at("checks").at("traffic_equals_formula") == true);
}

TEST_CASE("compare-cache gives every policy's overhead over the standard residual", "[cli]") {
  const json rows =
      answer("sim" + k3_layout + " --unit-us 100 --hop-us 0 --grad-wire storage --microbatches 32 --compare-cache")
          .at("policies");
  REQUIRE(rows.is_array());
  REQUIRE(rows.size() == 5);
  const auto overhead = [&](const char* policy) {
    for (const json& row : rows) {
      if (row.at("cache") == policy) {
        return row.at("overhead_over_standard").get<double>();
      }
    }
    return -1.0;
  };
  CHECK(overhead("standard") == 0);
  CHECK(overhead("naive") == Approx(0.066).margin(0.01));
  CHECK(overhead("relay") == Approx(0.022).margin(0.01));
  CHECK(overhead("direct") == Approx(0.0005).margin(0.01));
  CHECK(overhead("cached") < 0.002);
  CHECK(overhead("cached") > 0);
}

TEST_CASE("with a latency only a hop costs exactly the latency", "[cli]") {
  const json sim = answer("sim --pp 2 --microbatches 1 --sublayers 4 --block 2 --hop-us 500 --hop-GBps inf");
  CHECK(sim.at("step_us") == 2 * 1000 + 500 + 2 * 2000 + 500);
}

TEST_CASE("sim shares cards fairly and runs streams where asked to", "[cli]") {
  const std::string base = "sim --layers 16 --pp 4 --vp 2 --hop-us 10 --unit-us 40 ";
  const double exclusive = answer(base).at("step_us");
  CHECK(answer(base + "--sharing exclusive").at("step_us") == exclusive);
  for (const std::string streams : {"unordered", "single", "per-direction", "batched"}) {
    const json fair = answer(base + "--streams " + streams);
    CHECK(fair.at("network").at("sharing") == "fair");
    CHECK(fair.at("network").at("streams") == streams);
    CHECK(fair.at("checks").at("traffic_equals_formula") == true);
    CHECK(fair.at("step_us") > 0.9 * exclusive);
    CHECK(fair.at("step_us") < 2 * exclusive);
  }
  const double slowed = answer(base + "--streams single --comm-share 0.5").at("step_us");
  CHECK(slowed > answer(base + "--streams single").at("step_us").get<double>());
  // A latency alone: nothing to share.
  const std::string unlimited = "sim --layers 16 --pp 4 --vp 2 --hop-us 100 --hop-GBps inf ";
  CHECK(answer(unlimited + "--sharing fair").at("step_us") == answer(unlimited).at("step_us"));
}

TEST_CASE("the trace opens with a key and names every rank", "[cli]") {
  const Run run = run_plumb("sim --pp 2 --sublayers 4 --block 2 --trace t.json >/dev/null; cat t.json");
  REQUIRE(run.exit_code == 0);
  CHECK(run.out.rfind("{\"", 0) == 0);
  const json trace = json::parse(run.out);
  CHECK(trace.at("traceEvents").size() > 20);
}

TEST_CASE("the page of a step is a file beside what is printed, the same each time", "[cli]") {
  const std::string sim = "sim --pp 2 --sublayers 8 --block 2 --json";
  const Run run = run_plumb(sim + " --html p.html >j.json; cat p.html");
  REQUIRE(run.exit_code == 0);
  CHECK(run.err.empty());
  CHECK(run.out.starts_with("<!DOCTYPE html>\n"));
  CHECK(run.out.ends_with("</html>\n"));
  for (const char* shown :
       {"8 sublayers: 1f1b, cached", "naive", "GB/s per link", "over that with a standard residual"})
    CHECK(run.out.find(shown) != std::string::npos);
  CHECK(run_plumb(sim + " --html p.html >j.json; cat p.html").out == run.out);
  CHECK(run_plumb(sim + " --html p.html").out == run_plumb(sim).out);
  // The step and the rate say what they are of, and mean the same.
  const std::string cluster = "sim --model kimi-linear-48b --cluster h100 --pp 4 --tokens 512 --json";
  const std::string large = run_plumb(cluster + " --html p.html >j.json 2>/dev/null; cat p.html").out;
  const double whole_ms = json::parse(run_plumb(cluster).out).at("step_with_end_us").get<double>() / 1000;
  CHECK(large.find(fmt::format("the pipeline alone; {:.3f} ms with what comes after it", whole_ms)) !=
        std::string::npos);
  CHECK(large.find(fmt::format("over {:.3f} ms; ", whole_ms)) != std::string::npos);
  // Where there is nothing to compare the page says why.
  const std::string bare =
      run_plumb("sim --pp 2 --sublayers 8 --residual standard --html p.html >/dev/null; cat p.html").out;
  CHECK(bare.find("no blocks to route") != std::string::npos);
  const std::string free = run_plumb(sim + " --hop-GBps inf --html p.html >/dev/null; cat p.html").out;
  CHECK(free.find("Links have no rate here") != std::string::npos);
}

TEST_CASE("help and version are there and doctor finds the parts", "[cli]") {
  CHECK(run_plumb("--version").out == "plumb 0.1.0\n");
  for (const char* sub : {"", "volume ", "plan ", "check ", "sim "}) {
    const Run run = run_plumb(std::string(sub) + "--help");
    CHECK(run.exit_code == 0);
    CHECK(run.out.find("--help") != std::string::npos);
    CHECK(run.err.empty());
  }
#ifdef PLUMB_HAVE_DOCTOR
  const json doctor = answer("doctor");
  for (const char* part : {"compiler", "MPI", "torch", "CUDA", "NCCL", "threads"}) {
    CHECK(doctor.contains(part));
  }
#endif
}

// SPDX-License-Identifier: Apache-2.0
// plumb sim with the costs of a cluster or a profile.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "cli/support.hpp"
#include "support/catch.hpp"

using nlohmann::json;
using plumb::test::require_refused;
using plumb::test::Run;
using plumb::test::run_plumb;
using plumb::test::scratch_file;

namespace {

void sim_refuses(const std::string& arguments, const std::string& names) {
  require_refused("sim --pp 4 " + arguments, names);
}

constexpr const char* k3 = "--model kimi-k3 --cluster h100 ";

}  // namespace

TEST_CASE("K3 on a thousand H100s takes seconds per step, and less in every way that is faster", "[cli]") {
  const auto step_s = [](const std::string& arguments) {
    const Run run = run_plumb("sim --json --model kimi-k3 --pp 16 --vp 2 --microbatches 32 --tp 8 --dp 8 " + arguments);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const json answer = json::parse(run.out);
    CHECK(answer["checks"]["traffic_equals_formula"] == true);
    return answer["step_us"].get<double>() * 1e-6;
  };
  const double h100 = step_s("--ep 64 --cluster h100");
  CHECK(h100 > 1);
  CHECK(h100 < 10);
  CHECK(step_s("--ep 64 --cluster b200") < h100);
  CHECK(step_s("--ep 64 --cluster a100") > h100);
  CHECK(step_s("--ep 64 --cluster h100 --recompute full") > h100);
}

TEST_CASE("the cluster is shown as it was understood, and what is shown is understood", "[cli]") {
  const Run shown = run_plumb("sim --json --show-cluster --pp 4 --model kimi-linear-48b --cluster gb200-nvl72");
  REQUIRE(shown.exit_code == 0);
  const json answer = json::parse(shown.out);
  CHECK(answer["cluster"]["tiers"][0]["span_gpus"] == 72);
  const std::string file = scratch_file("cluster.json", answer["cluster"].dump(2));
  const Run again = run_plumb("sim --json --show-cluster --pp 4 --model kimi-linear-48b --cluster " + file);
  CHECK(again.out == shown.out);
}

TEST_CASE("unlikely figures and stages that fit no device are warned about", "[cli]") {
  const std::string file = scratch_file("odd.yaml",
                                        "gpu: {name: x, bf16_tflops_dense: 989, hbm_GBps: 3.35e12, mem_GiB: 80}\n"
                                        "tiers: [{name: a, GBps_per_dir: 50, latency_us: 5}]\n");
  const Run run = run_plumb("sim --pp 4 --model kimi-k3 --cluster " + file);
  CHECK(run.exit_code == 0);
  CHECK(run.err.find("warning: odd.yaml: line 1: gpu.hbm_GBps is 3.35e+12, which is unlikely") != std::string::npos);
  CHECK(run.err.find("warning: a device of rank") != std::string::npos);
  CHECK(run.err.find("of it are optimizer: raise --tp, --ep or --pp") != std::string::npos);
  // The first line of the part on memory says it as well, and so does the JSON.
  const std::size_t lack = run.out.find("\n\nDOES NOT FIT: a device of rank");
  REQUIRE(lack != std::string::npos);
  CHECK(run.out.find("GiB of a device when it holds most", lack) == run.out.find('\n', lack + 2) + 1);
  const json memory = json::parse(run_plumb("sim --json --pp 4 --model kimi-k3 --cluster " + file).out)["memory"];
  CHECK(memory["fits"] == false);
  CHECK(memory["lack"].get<std::string>().starts_with("a device of rank"));
  const std::string small = "sim --json --pp 4 --tp 2 --dp 8 --sharding optimizer --recompute full --model ";
  const json fits = json::parse(run_plumb(small + "kimi-linear-48b --cluster h200").out)["memory"];
  CHECK(fits["fits"] == true);
  CHECK(fits["lack"].is_null());
}

TEST_CASE("words of a report say what is the pipeline, what the step, whose bytes", "[cli]") {
  const std::string text = run_plumb("sim --pp 4 " + std::string(k3) + "--tp 8 --ep 64 --dp 16").out;
  CHECK(text.find("\npipeline ") != std::string::npos);
  CHECK(text.find(" ms: the pipeline, then ") != std::string::npos);
  CHECK(text.find("bytes here and of links are those of a rank, all its 8 tensor-parallel devices together, in one of "
                  "16 replicas; GiB by class are those of one device\n") != std::string::npos);
  CHECK(text.find("pipeline ms  GiB at the peak") != std::string::npos);
  const std::string plain = run_plumb("sim --layers 4 --pp 2").out;
  CHECK(plain.find("\nstep ") != std::string::npos);
  CHECK(plain.find("bytes here") == std::string::npos);
}

TEST_CASE("flags that do not go with a cluster, and clusters that are none, are refused", "[cli]") {
  sim_refuses("--model kimi-k3 --cluster h10", "did you mean 'h100'?");
  sim_refuses("--model kimi-k3 --tp 8", "--tp goes with --cluster only");
  sim_refuses("--layers 8 --cluster h100", "--cluster needs --model");
  sim_refuses(std::string(k3) + "--hop-us 3", "do not go with it");
  sim_refuses(std::string(k3) + "--action-us F=1", "exclude each other");
  sim_refuses(std::string(k3) + "--streams single --compare all", "--sharing exclusive only");
  sim_refuses(std::string(k3) + "--tp 7", "the nearest that does is 4");
  sim_refuses(std::string(k3) + "--tp 8 --ep 16", "it must divide them");
  sim_refuses(std::string(k3) + "--dtype fp32", "bf16");
  sim_refuses(std::string(k3) + "--sequence 1000", "whole sequences");
  sim_refuses(std::string(k3) + "--sharding all", "none, optimizer");
  sim_refuses("--model kimi-k3 --sharding none", "--sharding goes with --cluster only");
  sim_refuses(std::string(k3) + "--what-if --compare-cache", "--what-if");
  sim_refuses(std::string(k3) + "--recompute some", "none, selective and full");
  const std::string box = scratch_file("box.yaml",
                                       "gpu: {name: x, bf16_tflops_dense: 989, hbm_GBps: 3350, mem_GiB: 80}\n"
                                       "tiers: [{name: a, span_gpus: 8, GBps_per_dir: 50, latency_us: 5}]\n");
  sim_refuses("--model kimi-k3 --tp 8 --cluster " + box, "spans 8 devices");
}

TEST_CASE("ranks that share a node's card wait for each other under fair sharing, for every policy", "[cli]") {
  const auto policies = [](const std::string& arguments) {
    const Run run =
        run_plumb("sim --json --compare-cache --model kimi-linear-48b --cluster pcie-box --pp 16 " + arguments);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return json::parse(run.out)["policies"];
  };
  const json exclusive = policies("");
  const json fair = policies("--sharing fair");
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(fair[i]["bytes_per_step"] == exclusive[i]["bytes_per_step"]);
    CHECK(fair[i]["step_us"].get<double>() > 0.999 * exclusive[i]["step_us"].get<double>());
  }
  CHECK(fair[3]["cache"] == "direct");  // sixteen copies of every block leave through two cards
  CHECK(fair[3]["step_us"].get<double>() > 1.1 * exclusive[3]["step_us"].get<double>());
}

TEST_CASE("the cluster says how messages are sent, flags come before it", "[cli]") {
  const std::string sim = "sim --json --model kimi-linear-48b --cluster h100 --pp 4 --tp 2 --streams single ";
  const json network = json::parse(run_plumb(sim).out)["network"];
  CHECK(network["eager_bytes"] == 2 << 20);  // of a message of both devices
  CHECK(network["launch_us"] == 8.4);
  CHECK(network["comm_share"] == 0.05);
  const json other = json::parse(run_plumb(sim + "--eager-bytes 10 --launch-us 1 --comm-share 0").out)["network"];
  CHECK(other["eager_bytes"] == 20);
  CHECK(other["launch_us"] == 1);
  CHECK(other["comm_share"] == 0);
}

TEST_CASE("the parts of every rank's time are the step, what a device holds is the sum of its classes", "[cli]") {
  const std::string sim =
      "sim --json --model kimi-linear-48b --cluster pcie-box --pp 4 --dp 4 --ep 4 --streams single ";
  const json plain = json::parse(run_plumb(sim).out);
  const json sharded = json::parse(run_plumb(sim + "--sharding optimizer").out);
  CHECK(plain["checks"]["times_add_up"] == true);
  for (const json& rank : plain["ranks"]) {
    double sum = 0;
    for (const char* part : {"forward_us", "backward_us", "backward_weight_us"})
      sum += rank[part].get<double>();
    for (const char* part : {"warmup", "steady", "cooldown"})
      sum += rank["bubble_us"][part].get<double>();
    for (const char* part : {"wait", "queue", "wire"})
      sum += rank["exposed_us"][part].get<double>();
    CHECK(sum == Approx(plain["step_us"].get<double>()));
  }
  std::int64_t through = 0;
  for (const json& tier : plain["tiers"])
    through += tier["bytes"].get<std::int64_t>();
  CHECK(through == plain["traffic"]["bytes_per_step"]);
  for (std::size_t r = 0; r < 4; ++r) {
    const json& rank = plain["memory"]["ranks"][r];
    std::int64_t sum = 0;
    for (const json& bytes : rank["live_bytes"])
      sum += bytes.get<std::int64_t>();
    CHECK(sum == rank["peak_bytes"]);
    const auto optimizer = [&](const json& answer) {
      return answer["memory"]["ranks"][r]["live_bytes"]["optimizer"].get<double>();
    };
    CHECK(optimizer(sharded) < optimizer(plain));  // but for experts, which are there once: --ep is all of --dp
  }
  CHECK(plain["step_with_end_us"].get<double>() > plain["step_us"].get<double>());
  CHECK(sharded["step_us"] == plain["step_us"]);
  const json& rows = plain["memory"]["recompute"];
  REQUIRE(rows.size() == 3);
  CHECK(rows[0]["step_us"] == plain["step_us"]);
  for (std::size_t i = 1; i < 3; ++i) {
    CHECK(rows[i]["step_us"].get<double>() > rows[i - 1]["step_us"].get<double>());
    CHECK(rows[i]["peak_bytes"].get<double>() < rows[i - 1]["peak_bytes"].get<double>());
  }
}

TEST_CASE("the longest chain is the step, and what saves most comes first", "[cli]") {
  const Run run = run_plumb("sim --json --what-if --model kimi-linear-48b --cluster h100 --pp 4 --schedule zb-h1");
  REQUIRE(run.exit_code == 0);
  const json answer = json::parse(run.out);
  double sum = 0;
  for (const json& share : answer["critical_path"])
    sum += share["time_us"].get<double>();
  CHECK(sum == Approx(answer["step_us"].get<double>()));
  const json& rows = answer["what_if"];
  REQUIRE(rows.size() > 4);
  CHECK(rows[0]["what"] == "all computations");
  for (std::size_t i = 1; i < rows.size(); ++i)
    CHECK(rows[i]["saves_us"].get<double>() <= rows[i - 1]["saves_us"].get<double>());
  const std::string text = run_plumb("sim --what-if --layers 8 --pp 4").out;
  CHECK(text.find("the longest chain is the step: F ") != std::string::npos);
  CHECK(text.find("a tenth less time for") != std::string::npos);
}

TEST_CASE("a trace on a cluster shows what devices hold", "[cli]") {
  const Run run =
      run_plumb("sim --model kimi-linear-48b --cluster h100 --pp 4 --trace device.json >/dev/null && cat device.json");
  CHECK(run.out.find("\"device MiB\"") != std::string::npos);
  CHECK(run.out.find("\"optimizer\":") != std::string::npos);
}

TEST_CASE("a profile gives the times, a profile of other cuts is refused", "[cli]") {
  const std::string file = scratch_file("p.json", R"({"plumb_profile":1,"made_by":"x","steps":3,"cuts":[4,8],"chunks":[
    {"forward_s":0.001,"backward_s":0.002},{"forward_s":0.001,"backward_s":0.002}]})");
  const std::string flags = "sim --json --pp 2 --layers 4 --block-layers 2 --microbatches 4 --hop-us 0 --hop-GBps inf ";
  const Run run = run_plumb(flags + "--profile " + file);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(json::parse(run.out)["step_us"] == 5 * 3000.0);  // (M + P - 1)(F + B)
  sim_refuses("--layers 4 --block-layers 2 --profile " + file, "measured with 2 chunks that end at 4,8");
  sim_refuses("--layers 4 --profile " + file + " --action-us F=1", "exclude each other");
  sim_refuses("--layers 4 --profile " + file + " --ep 2 --cluster h100", "--ep does not go with --profile");
}

TEST_CASE("a profile of finer chunks serves coarser ones, and ranks share the cores of their machine", "[cli]") {
  const std::string file = scratch_file("fine.json", R"({"plumb_profile":1,"made_by":"x","steps":3,"cuts":[2,4,6,8],
    "chunks":[{"forward_s":0.0005,"backward_s":0.001},{"forward_s":0.0005,"backward_s":0.001},
              {"forward_s":0.0005,"backward_s":0.001},{"forward_s":0.0005,"backward_s":0.001}]})");
  const std::string flags = "sim --json --pp 2 --layers 4 --block-layers 2 --microbatches 4 --profile " + file;
  CHECK(json::parse(run_plumb(flags + " --hop-us 0 --hop-GBps inf").out)["step_us"] == 5 * 3000.0);
  const auto box = [](int cores) {
    return scratch_file("box.yaml",
                        "name: box\ngpu: {name: c, bf16_tflops_dense: 1, hbm_GBps: 10, mem_GiB: 24}\n"
                        "tiers: [{name: shm, GBps_per_dir: 4000, latency_us: 0}]\ncores_per_node: " +
                            std::to_string(cores) + "\n");
  };
  const json alone = json::parse(run_plumb(flags + " --cluster " + box(2)).out);
  CHECK_FALSE(alone.contains("network"));
  CHECK(alone["step_us"].get<double>() == Approx(5 * 3000).epsilon(0.01));
  const json crowded = json::parse(run_plumb(flags + " --cluster " + box(1)).out);
  CHECK(crowded["network"]["cores_per_node"] == 1);
  CHECK(crowded["step_us"].get<double>() == Approx(4 * 2 * 3000).epsilon(0.01));  // all the work on one core
  sim_refuses("--layers 4 --block-layers 2 --sharing exclusive --profile " + file + " --cluster " + box(1),
              "--sharing exclusive: ranks of this cluster share cores");
}

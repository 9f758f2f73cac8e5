// SPDX-License-Identifier: Apache-2.0
// plumb size.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cli/answer.hpp"
#include "support/catch.hpp"

using nlohmann::json;
using plumb::test::answer;
using plumb::test::fine;
using plumb::test::require_refused;
using plumb::test::Run;
using plumb::test::run_plumb;
using plumb::test::scratch_file;

namespace {

// A few hundred candidates.
const std::string small =
    "size --model kimi-linear-48b --gpus 16 --cluster h200 --tp 2 --ep 8 --microbatch 1 --sharding optimizer "
    "--recompute none,full ";

}  // namespace

TEST_CASE("what is printed reproduces the step: plumb sim says the same of time and memory, and the order is legal",
          "[cli]") {
  const json found = answer(small);
  REQUIRE(found["best"].size() >= 3);
  for (const std::size_t i : {0, 2}) {
    const json& one = found["best"][i];
    const json simulated = answer(one["command"].get<std::string>().substr(6));
    CHECK(simulated["step_us"].get<double>() == Approx(one["pipeline_us"].get<double>()).epsilon(1e-9));
    CHECK(simulated["step_with_end_us"].get<double>() == Approx(one["step_us"].get<double>()).epsilon(1e-9));
    double fullest = 0;
    for (const json& rank : simulated["memory"]["ranks"])
      fullest = std::max(fullest, rank["peak_bytes"].get<double>());
    CHECK(fullest == Approx(one["peak_bytes"].get<double>()).epsilon(1e-9));
  }
  const Run plan = run_plumb(found["use"]["plan"].get<std::string>().substr(6));
  CHECK(plan.exit_code == 0);
  CHECK(run_plumb("check schedule.csv").exit_code == 0);
}

TEST_CASE("the answer has what scripts rely on", "[cli]") {
  const json found = answer(small + "--pp 2");
  CHECK(found["candidates_tried"].get<int>() > 0);
  CHECK(found["complete"] == true);
  double before = 0;
  for (const json& one : found["best"]) {
    for (const char* key : {"pp", "vp", "tp", "ep", "dp", "sharding", "microbatches", "schedule", "group", "cache",
                            "cuts", "step_us", "tokens_per_s_per_gpu", "peak_bytes", "why"})
      CHECK(one.contains(key));
    CHECK(one["pp"] == 2);
    CHECK(one["tp"].get<int>() * one["dp"].get<int>() == 8);
    CHECK(one["step_us"].get<double>() >= before);
    CHECK(one["peak_bytes"].get<double>() <= found["memory_limit_bytes"].get<double>());
    before = one["step_us"].get<double>();
  }
  CHECK(found["pareto"][0]["step_us"] == found["best"][0]["step_us"]);
  CHECK(found["use"]["megatron"]["layout"].get<std::string>().starts_with("E"));
}

TEST_CASE("threads change no character, and a state that was cut off is gone on from", "[cli]") {
  const std::string narrow = small + "--pp 2 --vp 1,2 ";
  const Run whole = run_plumb(narrow + "--threads 1");
  REQUIRE(whole.exit_code == 0);
  CHECK(whole.out.find("Why the first") != std::string::npos);
  CHECK(whole.out.find("-0.0 ") == std::string::npos);
  CHECK(run_plumb(narrow + "--threads 3").out == whole.out);
  CHECK(run_plumb(narrow + "--state one.jsonl").out == whole.out);
  // Half of it, the last line without its end.
  const Run cut = run_plumb("volume --sublayers 2 --block 1 >/dev/null; head -c 3000 one.jsonl > two.jsonl");
  REQUIRE(cut.exit_code == 0);
  CHECK(run_plumb(narrow + "--state two.jsonl").out == whole.out);
  CHECK(run_plumb(narrow + "--state two.jsonl").out == whole.out);
  // What is settled may differ, the request may not.
  CHECK(run_plumb(small + "--pp 2 --vp 1 --state two.jsonl").exit_code == 0);
  require_refused(narrow + "--sequence 2048 --state two.jsonl", "is of another request");
  require_refused(narrow + "--state " + scratch_file("no.jsonl", "{\"steps\":1}\n"), "line 1 is not the one");
  require_refused(narrow + "--state .", "--state .");
}

TEST_CASE("a state with numbers that no simulation gives is refused by its line, one cut in its first line is new",
          "[cli]") {
  const std::string one =
      "size --model kimi-linear-48b --cluster h200 --gpus 16 --tp 2 --ep 8 --dp 4 --pp 2 --vp 1 "
      "--microbatch 1 --sharding optimizer --recompute full --schedule 1f1b --cache cached ";
  REQUIRE(run_plumb(one + "--state whole.jsonl").exit_code == 0);
  const std::string state = run_plumb("volume --sublayers 2 --block 1 >/dev/null; cat whole.jsonl").out;
  const std::size_t second = state.find('\n') + 1;
  const auto with = [&](const std::string& key, const std::string& value) {
    std::string changed = state;
    const std::size_t at = changed.find("\"" + key + "\":", second) + key.size() + 3;
    return scratch_file("changed.jsonl", changed.replace(at, changed.find_first_of(",}", at) - at, value));
  };
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{{"pipeline_us", "0"},
                                                                                   {"pipeline_us", "nan"},
                                                                                   {"pipeline_us", "1e308"},
                                                                                   {"step_end_us", "-1"},
                                                                                   {"peak_bytes", "inf"},
                                                                                   {"peak_rank", "2"},
                                                                                   {"network_bytes", "nan"},
                                                                                   {"bubble", "1.5"},
                                                                                   {"exposed_us", "-1"}})
    require_refused(one + "--state " + with(key, value), "line 2 is not one that plumb size wrote");
  for (const std::size_t length : {std::size_t{1}, std::size_t{30}, second - 1}) {
    CHECK(run_plumb(one + "--state " + scratch_file("cut.jsonl", state.substr(0, length))).exit_code == 0);
    CHECK(run_plumb("volume --sublayers 2 --block 1 >/dev/null; cat cut.jsonl").out == state);
  }
  require_refused(one + "--state " + scratch_file("cut.jsonl", "mine"), "line 1 is not the one");
}

TEST_CASE("torchtitan is told the placement's class, its stages and what it lacks, or why it cannot run the layout",
          "[cli]") {
  const std::string some =
      "size --model kimi-linear-48b --cluster h200 --gpus 16 --tp 2 --ep 4 --dp 2 --pp 4 "
      "--microbatch 1 --sharding optimizer --cache cached ";
  const auto use = [&](const std::string& flags) { return answer(some + flags)["use"]; };
  const auto has = [](const json& where, std::string_view text) {
    return where.get<std::string>().find(text) != std::string::npos;
  };
  const json half = use("--block-layers 4 --vp 2 --schedule v-half --recompute selective")["torchtitan"];
  CHECK(
      has(half, "pipeline_parallel_schedule = \"ZBVZeroBubble\"\npipeline_parallel_schedule_csv = \"schedule.csv\"\n"));
  CHECK(has(half, "module_fqns_per_model_part = [\n  [\"tok_embeddings\", \"layers.0\""));
  CHECK(has(half, "\"layers.26\", \"norm\", \"output\"],\n]\n"));
  CHECK(has(half, "[activation_checkpoint]\n# no mode does what was sized"));
  CHECK_FALSE(has(half, "mode = "));
  const json loop = use("--vp 3 --schedule interleaved --recompute full");
  CHECK(has(loop["torchtitan"], "\"PipelineScheduleMulti\"\npipeline_parallel_schedule_csv"));
  CHECK(has(loop["torchtitan"], "mode = \"full\""));
  const std::string stages = loop["torchtitan"].get<std::string>();
  CHECK(std::count(stages.begin(), stages.end(), ']') == 4 * 3 + 1 + 3);  // and the three headings
  const json flat = use("--vp 1 --schedule zb-h1 --recompute full");
  CHECK(flat["torchtitan"].is_null());
  CHECK(has(flat["torchtitan_obstacle"], "needs at least 2 stages per rank"));
  CHECK(has(use("--vp 1 --schedule 1f1b --block-layers 4 --recompute full")["note"], "Neither torchtitan nor"));
  CHECK_FALSE(has(use("--vp 1 --schedule 1f1b --recompute full --residual standard")["note"], "Neither"));
}

TEST_CASE("what would be faster if it fitted is told with what it lacks, and its command says the same", "[cli]") {
  const json found = answer(small + "--memory-limit 60");
  REQUIRE(found["would_be_faster"].size() >= 1);
  const json& other = found["would_be_faster"][0];
  CHECK(other["step_us"] < found["best"][0]["step_us"]);
  CHECK(other["lack_bytes"].get<double>() ==
        Approx(other["peak_bytes"].get<double>() - found["memory_limit_bytes"].get<double>()));
  CHECK(other["lack_bytes"].get<double>() > 0);
  CHECK(other["vp"] == found["best"][0]["vp"]);
  const json simulated = json::parse(fine(other["command"].get<std::string>().substr(6) + " --json"));
  CHECK(simulated["step_with_end_us"].get<double>() == Approx(other["step_us"].get<double>()).epsilon(1e-9));
  CHECK(simulated["pipeline_us"] == simulated["step_us"]);
  const std::string text = fine(small + "--memory-limit 60");
  CHECK(text.find("Not among them: the same layout with recomputation none would be") != std::string::npos);
  CHECK(
      answer(small + "--memory-limit 125 --recompute none --schedule 1f1b --cache cached")["would_be_faster"].empty());
}

TEST_CASE("what a model has beyond its stack of layers is told on stderr and in JSON, and a refusal stays one line",
          "[cli]") {
  const std::string model =
      scratch_file("mtp.json",
                   R"({"model_type": "deepseek_v3", "hidden_size": 512, "vocab_size": 1000, "num_hidden_layers": 4,
          "num_attention_heads": 4, "kv_lora_rank": 64, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
          "v_head_dim": 64, "intermediate_size": 1024, "num_nextn_predict_layers": 1})");
  const std::string part = "num_nextn_predict_layers: 1 (multi-token prediction)";
  for (const std::string& command :
       {"size --gpus 2 --pp 2 --vp 1 --schedule 1f1b --cluster h100 --model " + model,
        "sim --pp 2 --cluster h100 --model " + model, "sim --pp 2 --compare all --costs model --model " + model}) {
    const Run run = run_plumb(command);
    INFO(command);
    CHECK(run.exit_code == 0);
    CHECK(run.err == "warning: " + model + ": left out of all times and bytes: " + part + "\n");
  }
  for (const std::string& command :
       {"size --json --gpus 2 --pp 2 --vp 1 --schedule 1f1b --cluster h100 --model " + model,
        "sim --json --pp 2 --cluster h100 --model " + model})
    CHECK(json::parse(run_plumb(command).out)["left_out"] == json::array({part}));
  CHECK(answer(small + "--pp 2 --vp 1")["left_out"].empty());
  require_refused("size --gpus 2 --dp 3 --cluster h100 --model " + model, "--dp 3");
  require_refused("sim --pp 9 --cluster h100 --schedule zb-v --model " + model, "ZB-V");
  CHECK(run_plumb("volume --pp 2 --model " + model).err.empty());  // no time, no byte of layers
}

TEST_CASE("a model's path with a line break breaks no heading", "[cli]") {
  const std::string model =
      scratch_file("two\nlines.json",
                   R"({"model_type": "llama", "hidden_size": 512, "vocab_size": 1000, "num_hidden_layers": 4,
          "num_attention_heads": 4, "intermediate_size": 1024})");
  for (const char* command : {"size --gpus 2 --pp 2 --vp 1 --schedule 1f1b --cluster h100", "sim --pp 2 --cluster h100",
                              "sim --pp 2 --costs model", "volume --pp 2", "plan --pp 2"}) {
    const Run run = run_plumb(std::string(command) + " --model '" + model + "'");
    INFO(command << "\n" << run.out << run.err);
    CHECK(run.exit_code == 0);
    const std::size_t use = run.out.find("plumb sim --model");  // a command, quoted for the shell
    CHECK(run.out.substr(0, use).find("two\nlines") == std::string::npos);
  }
}

TEST_CASE("where nothing fits the rank, the class and what would fit are named", "[cli]") {
  const std::string large = "size --model kimi-linear-48b --gpus 2 --cluster h100 --pp 2 --vp 1 --schedule 1f1b ";
  const Run run = run_plumb(large + "--json");
  CHECK(run.exit_code == 1);
  CHECK(run.reason() == "memory");
  CHECK(run.err.find(" on rank ") != std::string::npos);
  CHECK(run.err.find("too much, most of it optimizer") != std::string::npos);
  CHECK(run.err.find("devices with pp") != std::string::npos);
  CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
  const json found = json::parse(run.out);
  CHECK(found["best"].empty());
  CHECK(found["misfit"]["weights_bytes"].get<double>() > 1e10);
}

TEST_CASE("requests that cannot be are refused with the nearest that can", "[cli]") {
  const std::string some = "size --model kimi-linear-48b --cluster h100 ";
  require_refused("size --gpus 8 --cluster h100", "--model");
  require_refused(some, "--gpus");
  require_refused("size --model kimi-k4 --gpus 8 --cluster h100", "kimi-k4");
  require_refused("size --model kimi-k3 --gpus 8 --cluster h1000", "did you mean 'h100'?");
  require_refused(some + "--gpus 0", "legal are 1 to");
  require_refused(some + "--gpus 12 --pp 8", "the nearest are 8 and 16");
  require_refused(some + "--gpus 16 --dp 16 --global-batch 24", "the nearest that can is 16 or 32");
  require_refused(some + "--gpus 16 --global-batch 0", "--global-batch");
  require_refused(some + "--gpus 16 --memory-limit 81", "has 80 GiB");
  require_refused(some + "--gpus 16 --memory-limit -1", "out of range");
  require_refused(some + "--gpus 16 --schedule zb-q", "zb-v");
  require_refused(some + "--gpus 16 --cache fast", "relay");
  require_refused(some + "--gpus 16 --recompute some", "selective");
  require_refused(some + "--gpus 16 --sharding zero3", "gradients");
  require_refused(some + "--gpus 16 --residual hc:4", "standard and attnres-block");
  require_refused(some + "--gpus 16 --block-layers 28", "legal are 1 to 27");
  require_refused(some + "--gpus 16 --block-layers 3 --residual standard", "does not go with");
  require_refused(some + "--gpus 16 --threads 0", "--threads");
  require_refused(some + "--gpus 16 --tokens 4096", "--tokens");
  require_refused(some + "--gpus 010", "decimal");
  // One flag alone is to blame.
  require_refused(some + "--gpus 8 --vp 100", "--vp 100 has no layout of kimi-linear-48b on 8 devices");
  require_refused(some + "--gpus 8 --pp 8 --vp 4",
                  "with --pp 8: a rank has up to 8 chunks of a decoder layer or more, as many as its schedule takes, "
                  "the nearest is 3");
  require_refused(some + "--gpus 8 --microbatch 3", "the nearest is 2");
  require_refused(some + "--gpus 8 --ep 7", "--ep 7 does not divide the 256 experts: the nearest that does is 4");
  require_refused(some + "--gpus 8 --pp 8 --ep 2", "the nearest is 1");
  require_refused(some + "--gpus 16 --tp 16", "stays in the innermost tier, the nearest is 8");
  require_refused(some + "--gpus 32 --pp 32", "a decoder layer of 27 or more, the nearest is 16");
  require_refused(some + "--gpus 8 --vp 1 --schedule zb-v", "with --schedule zb-v");
  require_refused(some + "--gpus 1 --schedule zb-v", "legal here: 1f1b");
  require_refused(some + "--gpus 1 --dp 1 --microbatch 1 --global-batch 2000000",
                  "than the 1048576 that a pipeline is laid out for: the largest --global-batch is 1048576, or "
                  "--microbatch 2");
}

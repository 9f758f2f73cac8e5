// SPDX-License-Identifier: Apache-2.0
// One clear line on stderr, exit code 2, nothing on stdout: for everything a user can get wrong.
#include <algorithm>

#include "cli/support.hpp"
#include "support/catch.hpp"

using plumb::test::require_refused;
using plumb::test::Run;
using plumb::test::run_plumb;
using plumb::test::scratch_file;

TEST_CASE("layouts that cannot be are refused with what is legal", "[cli]") {
  const std::string depth = " --sublayers 8 --block 2";
  for (const std::string value : {"0", "-1", "1000000000"}) {
    require_refused("volume --pp " + value + depth, "1..4096");
    require_refused("volume --vp " + value + depth, "1..1024");
    require_refused("sim --microbatches " + value + depth, "1..1048576");
  }
  for (const std::string value : {"99999999999999999999", "two", "1.5"}) {
    require_refused("volume --pp " + value + depth, "--pp");
    require_refused("volume --vp " + value + depth, "--vp");
    require_refused("sim --microbatches " + value + depth, "--microbatches");
  }
  require_refused("sim --microbatches ''" + depth, "--microbatches");
  require_refused("sim --pp=" + depth, "--pp");
  require_refused("volume --placement spiral" + depth, "loop");
  require_refused("plan --pp 4 --vp 2 --microbatches 9" + depth, "nearest");
  require_refused("plan --pp 4 --vp 2 --microbatches 8 --group 3" + depth, "group");
  require_refused("plan --pp 2 --vp 2 --placement vee --schedule interleaved" + depth, "loop");
  require_refused("plan --pp 2 --vp 2 --schedule 1f1b" + depth, "1");
  require_refused("plan --pp 2 --post-ahead 65" + depth, "64");
}

TEST_CASE("depths and cuts that cannot be are refused with what is legal", "[cli]") {
  for (const std::string value : {"0", "-4", "100000000", "x"}) {
    require_refused("volume --sublayers " + value, "sublayers");
    require_refused("volume --layers " + value, "layers");
    require_refused("volume --sublayers 8 --block " + value, "block");
    require_refused("volume --layers 8 --block-layers " + value, "block-layers");
    require_refused("volume --sublayers 8 --hidden " + value, "hidden");
  }
  require_refused("volume", "--model");
  require_refused("volume --sublayers 8 --layers 4", "exclude");
  require_refused("volume --sublayers 8 --block-layers 2", "--block");
  require_refused("volume --layers 8 --block 2", "--block-layers");
  require_refused("volume --sublayers 8 --residual full", "attnres-full");
  require_refused("volume --pp 3 --sublayers 8 --cuts 5,3,8", "3");
  require_refused("volume --pp 3 --sublayers 8 --cuts 2,9,8", "9");
  require_refused("volume --pp 3 --sublayers 8 --cuts 2,4,7", "7");
  require_refused("volume --pp 3 --sublayers 8 --cuts 2,", "--cuts");
  require_refused("volume --pp 3 --sublayers 8 --cuts 1,2,3,8", "4 counts");
  require_refused("volume --pp 3 --sublayers 8 --cuts a,b", "'a'");
  require_refused("volume --pp 3 --sublayers 8 --cuts 4,8", "nothing is left for the last chunk");
  require_refused(
      "volume --pp 2 --layout 'Et|tL' --model kimi-k3",
      "--layout \"Et|tL\" has 2 decoder layers t, which are 4 sublayers, but the depth is kimi-k3: 93 decoder");
  require_refused("volume --pp 2 --sublayers 8 --cuts automatic", "auto");
  require_refused("volume --pp 4096 --vp 16 --sublayers 65537 --block 8 --cuts auto", "even cuts");
}

TEST_CASE("model files that cannot be read are refused with path and field", "[cli]") {
  require_refused("volume --model nowhere.json", "kimi-k3");
  require_refused("volume --model .", "directory");
  const auto refuse_file = [](const std::string& content, const std::string& names) {
    require_refused("volume --model " + scratch_file("config.json", content), names);
  };
  refuse_file("", "not JSON");
  refuse_file("not json", "not JSON");
  refuse_file("[1,2]", "object");
  refuse_file("{}", "num_hidden_layers");
  refuse_file(R"({"num_hidden_layers": 4})", "hidden_size");
  refuse_file(R"({"num_hidden_layers": "4", "hidden_size": 8})", "num_hidden_layers");
  refuse_file(R"({"num_hidden_layers": 4.5, "hidden_size": 8})", "num_hidden_layers");
  refuse_file(R"({"num_hidden_layers": -4, "hidden_size": 8})", "num_hidden_layers");
  refuse_file(R"({"num_hidden_layers": 99999999999, "hidden_size": 8})", "num_hidden_layers");
  refuse_file(R"({"text_config": 3})", "text_config");
  refuse_file(R"({"text_config": {"num_hidden_layers": 4}})", "text_config.hidden_size");
  refuse_file(R"({"num_hidden_layers": 4, "hidden_size": 8, "attn_res_block_size": 5})", "attn_res_block_size");
  require_refused("volume --residual attnres-block --model " +
                      scratch_file("config.json", R"({"num_hidden_layers": 4, "hidden_size": 8})"),
                  "--block-layers");
}

TEST_CASE("nothing that is read is written over, and no two outputs are one", "[cli]") {
  const std::string config = R"({"num_hidden_layers": 4, "hidden_size": 8})";
  const std::string model = scratch_file("in.json", config);
  const std::string profile = scratch_file("times.json", R"({"plumb_profile":1,"made_by":"x","steps":1,"cuts":[4,8],
    "chunks":[{"forward_s":1,"backward_s":1},{"forward_s":1,"backward_s":1}]})");
  const std::string sim = "sim --pp 2 --model " + model;
  require_refused(sim + " --trace " + model, "--model and --trace name the same file");
  require_refused(sim + " --html ./" + model, "--model and --html name the same file");
  require_refused(sim + " --profile " + profile + " --trace " + profile, "--profile and --trace");
  require_refused("plan --pp 2 --model " + model + " --format csv -o " + model, "--model and --output");
  require_refused(sim + " --trace new.out --html new.out", "--trace and --html");
  run_plumb("--version; ln -s later.out link.out");
  require_refused(sim + " --trace later.out --html link.out", "--trace and --html");
  require_refused(sim + " --json --trace /dev/stdout", "--trace names standard output");
  CHECK(run_plumb(sim + " --trace /dev/null --html /dev/null").exit_code == 0);
  CHECK(run_plumb("--version; cat " + model).out.find(config) != std::string::npos);
}

TEST_CASE("unknown flags, values and parts not built are refused alike", "[cli]") {
  const std::string depth = " --sublayers 8 --block 2";
  require_refused("volume --colour" + depth, "--colour");
  require_refused("fly", "fly");
  require_refused("volume --dtype int8" + depth, "bf16");
  require_refused("volume --grad-wire fp8" + depth, "fp32");
  require_refused("sim --cache fast" + depth, "relay");
  require_refused("sim --schedule zb-q --vp 2" + depth, "interleaved");
  require_refused("volume --schedule '' --vp 2" + depth, "--schedule");
  require_refused("plan --format png" + depth, "svg");
  require_refused("plan --json --format csv" + depth, "exclude");
  require_refused("volume --layout 'Et*3|L'" + depth, "--layout");
  require_refused("sim --cluster h100" + depth, "--cluster");
  require_refused("sim --action-us F=x" + depth, "--action-us");
  require_refused("sim --action-us Q=1" + depth, "Q=1");
  require_refused("sim --action-us F=1," + depth, "''");
  require_refused("sim --action-us ,F=1" + depth, "''");
  require_refused("sim --action-us F=1,F=2" + depth, "twice");
  require_refused("sim --action-us F=-1" + depth, "F");
  require_refused("sim --hop-us -1" + depth, "hop-us");
  require_refused("sim --hop-GBps 0" + depth, "");
  require_refused("sim --hop-GBps fast" + depth, "fast");
  require_refused("sim --unit-us 5 --hop-GBps 5" + depth, "exclude");
  require_refused("check -", "empty");
  require_refused("check nothing.csv", "nothing.csv");
  require_refused("check - --channels magic", "rendezvous", "0F0,0B0\n");
  require_refused("check -", "0F0junk", "0F0junk,0B0\n");
  require_refused("check -", "JSON", "{\"layout\":");
}

TEST_CASE("numbers are decimal: no octal, no hexadecimal, no wrapping", "[cli]") {
  for (const std::string value : {"010", "0x4", "+4", "4 ", "08"}) {
    require_refused("volume --sublayers 8 --pp '" + value + "'", "decimal");
  }
  require_refused("volume --sublayers 8 --tokens 99999999999", "legal are 1 to 1073741824");
}

TEST_CASE("a number too large for any variable and one too large for its flag are refused with the same limits",
          "[cli]") {
  const std::string steps = "sim --layers 4 ";
  const std::string size = "size --model kimi-k3 --cluster h100 ";
  for (const auto& [before, flag] :
       std::vector<std::pair<std::string, std::string>>{{steps, "--pp"},
                                                        {steps, "--vp"},
                                                        {steps, "--microbatches"},
                                                        {steps, "--hidden"},
                                                        {steps, "--tokens"},
                                                        {steps, "--post-ahead"},
                                                        {"sim ", "--layers"},
                                                        {"sim ", "--sublayers"},
                                                        {size, "--gpus"},
                                                        {size + "--gpus 8 ", "--sequence"},
                                                        {size + "--gpus 8 ", "--threads"},
                                                        {size + "--gpus 8 ", "--global-batch"}}) {
    const std::string most = run_plumb(before + flag + " 2147483647").err;
    for (const char* beyond : {" 99999999999", " -99999999999"}) {
      const std::string err = run_plumb(before + flag + beyond).err;
      INFO(most << err);
      const std::size_t at = err.find("legal are ") + 10;
      const std::string limits = err.substr(at, err.find(" (see") - at);
      const std::string dotted = limits.substr(0, limits.find(' ')) + ".." + limits.substr(limits.rfind(' ') + 1);
      CHECK((most.find(limits) != std::string::npos || most.find(dotted) != std::string::npos));
    }
  }
  require_refused(steps + "--group 99999999999", "larger than any number that this flag takes");
  require_refused(steps + "--memory-chunks -99999999999", "smaller than any number that this flag takes");
}

TEST_CASE("flags that contradict each other are refused, never ignored", "[cli]") {
  require_refused("sim --sublayers 8 --residual attnres-full --block 2", "--block");
  require_refused("sim --layers 8 --residual standard --block-layers 2", "--block-layers");
  require_refused("sim --sublayers 8 --residual standard --cache naive", "--cache");
  require_refused("sim --sublayers 8 --compare-cache --cache naive", "--compare-cache");
  require_refused("sim --sublayers 8 --compare-cache --against run.jsonl", "--against");
  require_refused("sim --sublayers 8 --trace t.json --against run.jsonl", "--against");
  for (const std::string other : {"--against run.jsonl", "--compare 1f1b", "--compare-cache", "--compare-residual all"})
    require_refused("sim --sublayers 8 --html p.html " + other, other.substr(0, other.find(' ')));
  require_refused("sim --sublayers 8 --html p.html --trace ./p.html", "same file");
  require_refused("sim --sublayers 8 --html p.json --model p.json", "same file");
  require_refused("plan --sublayers 8 --html p.html", "--html");
  require_refused("sim --sublayers 8 --against .", "cannot be read");
  require_refused("check - --placement vee", "--placement", "{}");
}

TEST_CASE("a schedule and what does not go with it are refused with the rule", "[cli]") {
  const std::string plan = "plan --format csv --pp 4 ";
  for (const std::string name : {"zb-v", "dualpipe-v", "v-half", "v-min"}) {
    require_refused(plan + "--vp 2 --placement loop --schedule " + name, "vee");
    require_refused(plan + "--vp 4 --schedule " + name, "2");
    require_refused(plan + "--vp 2 --group 4 --schedule " + name, "--group");
  }
  require_refused(plan + "--vp 2 --schedule 1f1b", "interleaved");
  require_refused(plan + "--vp 2 --schedule gpipe", "looped-bfs");
  require_refused(plan + "--vp 2 --placement vee --schedule interleaved", "loop");
  require_refused(plan + "--schedule gpipe --group-rule torch", "--group-rule");
  require_refused(plan + "--vp 2 --group-rule deepspeed", "megatron");
  require_refused(plan + "--vp 2 --group 4 --group-rule torch", "--group");
  require_refused(plan + "--vp 2 --microbatches 9 --group-rule torch", "9");
  require_refused(plan + "--vp 2 --microbatches 4 --schedule dualpipe-v", "8");
}

TEST_CASE("output through a link or into a pipe goes where it points", "[cli]") {
  const std::string plan = "plan --pp 2 --sublayers 8 --block 2 --format csv -o ";
  CHECK(run_plumb(plan + "link; true", "").exit_code == 0);
  CHECK(run_plumb("--version >/dev/null; rm -f link; ln -s real.csv link; " PLUMB_COMMAND " " + plan +
                  "link; test -L link && cat real.csv")
            .out.rfind("0F0,", 0) == 0);
  CHECK(run_plumb("--version >/dev/null; rm -f pipe; mkfifo pipe; (cat pipe >from_pipe &) ; " PLUMB_COMMAND " " + plan +
                  "pipe; test -p pipe && cat from_pipe")
            .exit_code == 0);
}

TEST_CASE("a full disk behind stdout is an environment failure", "[cli]") {
  for (const std::string command : {"plan --pp 2 --sublayers 8 --block 2 --json", "plan --pp 2 --format csv",
                                    "volume --sublayers 8", "sim --pp 2 --sublayers 8 --json"}) {
    CHECK(run_plumb(command + " >/dev/full 2>err; echo $?").out == "3\n");
  }
}

TEST_CASE("a missing sibling program is one line and exit code 3", "[cli]") {
  // `bench`, `train` and `doctor` are programs of their own; an empty PATH and a copy without siblings hide them.
  const Run run =
      run_plumb("--version >/dev/null; cp \"$(command -v " PLUMB_COMMAND ")\" ./lonely; PATH= ./lonely train");
  CHECK(run.exit_code == 3);
  CHECK(run.reason() == "config");
  CHECK(run.err.find("plumb-train") != std::string::npos);
}

TEST_CASE("an output file that cannot be written is an environment failure and leaves nothing behind", "[cli]") {
  const Run run = run_plumb("plan --pp 2 --sublayers 8 --block 2 --format json -o missing/plan.json");
  CHECK(run.exit_code == 3);
  CHECK(run.err.find("missing/plan.json") != std::string::npos);
  CHECK(run_plumb("plan --pp 2 --sublayers 8 --block 2 -o p.txt; ls").out.find("tmp") == std::string::npos);
}

// A sanitizer takes terabytes of address space for itself: under such a limit nothing of its program starts.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("a legal problem that does not fit the memory is refused at once with what it needs", "[cli]") {
  const std::string limited = "--version >/dev/null; ulimit -v 4000000; " PLUMB_COMMAND " ";
  const std::string size = " --pp 64 --vp 16 --microbatches 16384";
  for (const std::string& command : {"plan" + size, "plan --format svg" + size, "sim --layers 512" + size,
                                     "plan --compare interleaved" + size, "sim --schedule auto --layers 512" + size}) {
    const Run run = run_plumb(limited + command);
    INFO(command << "\n" << run.err);
    CHECK(run.exit_code == 3);
    CHECK(run.out.empty());
    CHECK(run.reason() == "memory");
    CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
    CHECK(run.err.find("GiB are free") != std::string::npos);
  }
}
#endif

TEST_CASE("a file cut off by a limit on its size is one line and leaves nothing behind", "[cli]") {
  const std::string limited = "--version >/dev/null; (rm -f big.*; ulimit -f 8; " PLUMB_COMMAND " ";
  const Run file =
      run_plumb(limited + "plan --pp 8 --microbatches 512 --format csv -o big.csv; echo $?; ls | grep big)");
  CHECK(file.out == "3\n");
  CHECK(file.err == "config: cannot write big.csv: a file may not be that large here\n");
  const Run trace =
      run_plumb(limited + "sim --pp 8 --layers 16 --microbatches 64 --trace big.json; echo $?; ls | grep big)");
  CHECK(trace.out == "3\n");
  CHECK(run_plumb(limited + "plan --pp 8 --microbatches 512 --format csv >big.txt; echo $?)").out == "3\n");
}

TEST_CASE("a message stays one line whatever a path holds", "[cli]") {
  require_refused("check 'no\nsuch\tfile'", "no\\x0asuch\\x09file");
  require_refused("volume --model 'a\nb'", "a\\x0ab");
  const Run run = run_plumb("plan --pp 2 -o 'no\ndir/x'");
  CHECK(run.exit_code == 3);
  CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
}

TEST_CASE("JSON nested without end is refused without being built", "[cli]") {
  const std::string deep(10'000'000, '[');
  require_refused("check -", "nested deeper than 64", "{\"a\":" + deep);
  require_refused("volume --model " + scratch_file("deep.json", deep), "nested deeper than 64");
}

TEST_CASE("auto and the costs of a model are refused where they cannot be had", "[cli]") {
  const std::string sim = "sim --model kimi-k3 --pp 4 --vp 2 ";
  require_refused(sim + "--schedule auto --memory-chunks 1",
                  "rank 0 needs at least 2 chunk activations, the limit is 1: 1 short");
  require_refused(sim + "--schedule auto --memory-chunks -1", "at least 0");
  require_refused(sim + "--schedule auto --group 4", "--schedule auto");
  require_refused(sim + "--schedule interleaved --memory-chunks 9", "--schedule auto only");
  require_refused(sim + "--compare 1f1b --memory-chunks 9", "--compare");
  require_refused(sim + "--costs guess", "legal are depth and model");
  require_refused(sim + "--costs depth --teraflops 100", "--costs model only");
  require_refused(sim + "--costs model --action-us F=1", "exclude each other");
  require_refused(sim + "--costs model --teraflops 0", "more than 0");
  require_refused(sim + "--teraflops 100", "--costs model only");
  require_refused("sim --layers 8 --pp 2 --costs model", "--model");
}

TEST_CASE("flags of fair sharing are refused where they mean nothing", "[cli]") {
  const std::string sim = "sim --layers 8 --pp 4 ";
  require_refused(sim + "--sharing some", "legal are exclusive and fair");
  require_refused(sim + "--streams two", "legal are unordered, single, per-direction and batched");
  require_refused(sim + "--sharing exclusive --streams single", "--sharing fair");
  require_refused(sim + "--eager-bytes 100", "--eager-bytes goes with --sharing fair");
  require_refused(sim + "--launch-us 1", "--launch-us goes with --sharing fair");
  require_refused(sim + "--comm-share 0.1", "--comm-share goes with --sharing fair");
  require_refused(sim + "--streams single --comm-share 1", "0..0.95");
  require_refused(sim + "--sharing fair --comm-share 0.1", "only where they have streams");
  require_refused(sim + "--sharing fair --single-stream", "--single-stream");
  require_refused(sim + "--sharing fair --eager-bytes 2000000000000000000", "--eager-bytes");
  require_refused(sim + "--sharing fair --compare all", "--compare");
  require_refused(sim + "--sharing fair --eager-bytes -1", "-1 bytes");
  require_refused(sim + "--sharing fair --launch-us -1", "--launch-us");
  require_refused(sim + "--sharing fair --hop-GBps 1e7", "1..8e+12");
}

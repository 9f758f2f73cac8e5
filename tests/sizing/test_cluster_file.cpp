// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/cluster_file.hpp"
#include "support/catch.hpp"
#include "support/refusals.hpp"

using namespace plumb;

namespace {

constexpr const char* good = R"(name: two nodes
gpu: {name: H100, bf16_tflops_dense: 989, hbm_GBps: 3350, mem_GiB: 80}
tiers:
  - {name: nvlink, span_gpus: 8, GBps_per_dir: 450, efficiency: 0.82, latency_us: 2}
  - {name: ib, GBps_per_dir: 50, latency_us: 5, shared_by_gpus: 2, full_duplex: false}
p2p: {eager_limit_bytes: 1048576, launch_us: 5}
stragglers:
  - {rank: 3, compute_scale: 1.1}
cores_per_node: 2
)";

// `good` with the first `from` replaced.
std::string with(const std::string& from, const std::string& to) { return test::replaced(good, from, to); }

std::string refusal(const std::string& text) {
  return test::refusal_of([&] { parse_cluster(text, "c.yaml"); });
}

}  // namespace

TEST_CASE("a cluster file is read with its defaults", "[sizing]") {
  const ReadCluster read = parse_cluster(good, "c.yaml");
  CHECK(read.warnings.empty());
  CHECK(read.cluster.name == "two nodes");
  CHECK(read.cluster.gpu.usable_mem_fraction == 0.9);
  REQUIRE(read.cluster.tiers.size() == 2);
  CHECK(read.cluster.tiers[0].shared_by_gpus == 1);
  CHECK(read.cluster.tiers[1].span_gpus == 0);
  CHECK_FALSE(read.cluster.tiers[1].full_duplex);
  CHECK(read.cluster.stragglers == std::vector<Straggler>{{3, 1.1}});
  CHECK(read.cluster.cores_per_node == 2);
}

TEST_CASE("what is written of a cluster, YAML or JSON, is read back to the same", "[sizing]") {
  std::vector<Cluster> clusters{parse_cluster(good, "c.yaml").cluster};
  for (const std::string_view name : cluster_names())
    clusters.push_back(*cluster_preset(name));
  clusters[0].name = "with \"quotes\" and \\ and: #";
  for (const Cluster& cluster : clusters) {
    for (const std::string& text : {to_yaml(cluster), to_json(cluster)}) {
      const ReadCluster read = parse_cluster(text, "x");
      CHECK(read.cluster == cluster);
      CHECK(read.warnings.empty());  // presets are likely
    }
  }
}

TEST_CASE("JSON indented with tabs is read", "[sizing]") {
  const Cluster h100 = *cluster_preset("h100");
  std::string text = to_json(h100);
  text.replace(1, 0, "\n\t\t");
  CHECK(parse_cluster(text, "x").cluster == h100);
}

TEST_CASE("keys that are unknown, missing, without unit or twice are refused with line and remedy", "[sizing]") {
  CHECK(refusal(with("hbm_GBps", "hbm_gbs")) ==
        "c.yaml: line 2: unknown key 'gpu.hbm_gbs', did you mean 'hbm_GBps'? Units stand in the keys");
  CHECK(refusal(with("mem_GiB: 80", "mem: 80")) ==
        "c.yaml: line 2: unknown key 'gpu.mem', did you mean 'mem_GiB'? Units stand in the keys");
  CHECK(refusal(with("efficiency", "eficiency")) ==
        "c.yaml: line 4: unknown key 'tiers[0].eficiency', did you mean 'efficiency'?");
  CHECK(refusal(with("cores_per_node", "colour")).starts_with("c.yaml: line 9: unknown key 'colour'; legal here are"));
  CHECK(refusal(with(", mem_GiB: 80", "")) == "c.yaml: line 2: gpu lacks the key 'mem_GiB'");
  CHECK(refusal(with("hbm_GBps: 3350", "hbm_GBps: 3.35 TB/s")) ==
        "c.yaml: line 2: gpu.hbm_GBps is '3.35 TB/s', a plain number is needed: its unit, GBps, stands in the key");
  CHECK(refusal(with("launch_us: 5", "launch_us: 5, launch_us: 6")) ==
        "c.yaml: line 6: the key 'launch_us' stands twice, first in line 6");
  CHECK(refusal(with("cores_per_node: 2", "cores_per_node: 2.5")) ==
        "c.yaml: line 9: cores_per_node is '2.5', a whole number is needed");
}

TEST_CASE("zero bandwidth and tiers that are empty, cyclic or do not nest are refused", "[sizing]") {
  CHECK(refusal(with("GBps_per_dir: 50,", "GBps_per_dir: 0,")) ==
        "c.yaml: line 5: tiers[1].GBps_per_dir is 0, legal are 1e-06 to 4000");
  CHECK(refusal(with("name: ib", "name: nvlink")) ==
        "c.yaml: line 5: tier 'nvlink' stands twice: tiers lie one in the other, innermost first");
  CHECK(refusal(with("name: ib", "name: ib, span_gpus: 12")) ==
        "c.yaml: line 5: tier 'ib' spans 12 devices around 'nvlink', which spans 8: a larger multiple is needed, the "
        "nearest is 16");
  CHECK(refusal(with("name: ib", "name: ib, span_gpus: 8")).find("the nearest is 16") != std::string::npos);
  CHECK(refusal(with("span_gpus: 8, ", "")) ==
        "c.yaml: line 4: tier 'nvlink' lacks span_gpus, which only the last may");
  CHECK(refusal("gpu: {name: a, bf16_tflops_dense: 9, hbm_GBps: 99, mem_GiB: 8}\ntiers: []") ==
        "c.yaml: line 2: tiers is empty: at least one is needed");
  CHECK(refusal("a: &x [*x]").find("anchor (&)") != std::string::npos);
  CHECK(refusal(with("rank: 3, compute_scale: 1.1}", "rank: 3, compute_scale: 1}\n  - {rank: 3, compute_scale: 1}")) ==
        "c.yaml: line 9: rank 3 stands twice among the stragglers");
}

TEST_CASE("figures in the wrong unit are warned about", "[sizing]") {
  for (const auto& [from, to, what] :
       {std::tuple{"hbm_GBps: 3350", "hbm_GBps: 3.35e12", "were bytes"},
        {"mem_GiB: 80", "mem_GiB: 85899345920", "were bytes or MiB"},
        {"GBps_per_dir: 450", "GBps_per_dir: 3600", "were bits"},
        {"latency_us: 5", "latency_us: 5000", "were nanoseconds"},
        {"bf16_tflops_dense: 989", "bf16_tflops_dense: 0.989", "operations per second"}}) {
    const ReadCluster read = parse_cluster(with(from, to), "c.yaml");
    REQUIRE(read.warnings.size() == 1);
    CHECK(read.warnings[0].find(what) != std::string::npos);
    CHECK(read.warnings[0].find("c.yaml: line ") == 0);
  }
}

TEST_CASE("text that is no cluster is refused in one line, whatever is cut or changed", "[sizing]") {
  CHECK(refusal("") == "c.yaml: the file is empty");
  CHECK(refusal("- a") == "c.yaml: line 1: the file is a list, keys with values are needed");
  CHECK(refusal(std::string(good) + "---\na: b\n").find("second document") != std::string::npos);
  CHECK(refusal("gpu: {name: [").find("neither YAML nor JSON") != std::string::npos);
  CHECK(refusal("a: " + std::string(40, '[') + std::string(40, ']')).find("nested deeper") != std::string::npos);
  for (const char* part : {"[", "{a: ", "- ", "? "}) {
    std::string deep;
    while (deep.size() < 100'000)
      deep += part;
    CHECK_FALSE(refusal(deep).empty());
  }
  const std::string text = good;
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    const std::string why = refusal(text.substr(0, cut));
    CHECK(why.find('\n') == std::string::npos);
    std::string changed = text;
    for (const char c : {':', '}', '"', '-', '\n', '\x01', '*'}) {
      changed[cut] = c;
      CHECK(refusal(changed).find('\n') == std::string::npos);  // legal or refused, never anything else
    }
  }
}

TEST_CASE("a cluster that is no preset and no file is refused with the presets", "[sizing]") {
  CHECK_THROWS_WITH(load_cluster("h10"),
                    "cannot read cluster 'h10': no such file, did you mean 'h100'?, and the presets are a100, h100, "
                    "h200, b200, gb200-nvl72, pcie-box, ethernet-25g");
  CHECK_THROWS_WITH(load_cluster("/tmp"), "/tmp is a directory, a cluster file is needed");
}

TEST_CASE("devices talk through the innermost tier that has both", "[sizing]") {
  const Cluster h100 = *cluster_preset("h100");
  CHECK(tier_between(h100, 0, 7).name == "nvlink");
  CHECK(tier_between(h100, 7, 8).name == "infiniband");
  Cluster box = h100;
  box.tiers.pop_back();
  CHECK_NOTHROW(require_room(box, 8));
  CHECK_THROWS_WITH(require_room(box, 16), Catch::Contains("the outermost, nvlink, spans 8 devices"));
}

// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/cluster_file.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "did_you_mean.hpp"
#include "plumb/schedule/error.hpp"
#include "yaml_fields.hpp"

namespace plumb {
namespace {

constexpr std::size_t max_file_bytes = std::size_t{1} << 20;
constexpr std::size_t max_tiers = 16;
constexpr std::size_t max_stragglers = 4096;
constexpr std::int64_t max_gpus = std::int64_t{1} << 30;
constexpr double smallest = 1e-6;  // rates below are no rates

constexpr LegalRange tflops_range{.least = smallest,
                                  .most = 1e6,
                                  .low = 5,
                                  .high = 20'000,
                                  .hint = "; were operations per second meant, or sparse ones?"};
constexpr LegalRange hbm_range{
    .least = smallest, .most = 1e15, .low = 50, .high = 50'000, .hint = "; were bytes, or TB meant where GB are?"};
constexpr LegalRange memory_range{
    .least = smallest, .most = 1e15, .low = 4, .high = 2'000, .hint = "; were bytes or MiB meant where GiB are?"};
constexpr LegalRange rate_range{.least = smallest,
                                .most = 4'000,
                                .low = 0.1,
                                .high = 2'000,
                                .hint = "; were bits, or both directions together meant?"};
constexpr LegalRange latency_range{
    .least = 0, .most = 1e7, .low = 0, .high = 1'000, .hint = "; were nanoseconds meant where microseconds are?"};
constexpr LegalRange scale_range{.least = 0.01, .most = 1'000, .low = 0.5, .high = 10};
constexpr LegalRange share_range{.least = 0, .most = max_compute_share, .low = 0, .high = 0.5};
constexpr LegalRange fraction_range{.least = 0.01, .most = 1, .low = 0.3, .high = 1};

Gpu read_gpu(const YamlNode& node, std::string_view source, std::vector<std::string>& warnings) {
  YamlFields fields(node, source, "gpu", warnings);
  Gpu gpu;
  gpu.name = fields.text("name");
  gpu.bf16_tflops_dense = fields.number("bf16_tflops_dense", tflops_range);
  gpu.hbm_GBps = fields.number("hbm_GBps", hbm_range);
  gpu.mem_GiB = fields.number("mem_GiB", memory_range);
  gpu.usable_mem_fraction = fields.number_or("usable_mem_fraction", fraction_range, gpu.usable_mem_fraction);
  gpu.num_sms = static_cast<int>(fields.whole("num_sms", 1, 1 << 16).value_or(0));
  fields.finish();
  return gpu;
}

Tier read_tier(const YamlNode& node, std::string_view source, std::size_t index, bool last,
               std::vector<std::string>& warnings) {
  YamlFields fields(node, source, fmt::format("tiers[{}]", index), warnings);
  Tier tier;
  tier.name = fields.text("name");
  const std::optional<std::int64_t> span = fields.whole("span_gpus", 1, max_gpus);
  if (!span && !last) {
    fields.refuse(node.line, fmt::format("tier '{}' lacks span_gpus, which only the last may", tier.name));
  }
  tier.span_gpus = span.value_or(0);
  tier.GBps_per_dir = fields.number("GBps_per_dir", rate_range);
  tier.efficiency = fields.number_or("efficiency", fraction_range, tier.efficiency);
  tier.latency_us = fields.number("latency_us", latency_range);
  tier.shared_by_gpus = static_cast<int>(fields.whole("shared_by_gpus", 1, 1 << 20).value_or(1));
  tier.full_duplex = fields.flag_or("full_duplex", true);
  fields.finish();
  return tier;
}

std::vector<Tier> read_tiers(const YamlNode& node, std::string_view source, std::vector<std::string>& warnings) {
  const auto refuse = [&](int line, std::string_view why) {
    throw InputError(fmt::format("{}: line {}: {}", source, line, why));
  };
  if (node.kind != YamlNode::Kind::list) refuse(node.line, "tiers is no list: give the tiers, innermost first");
  if (node.items.empty()) refuse(node.line, "tiers is empty: at least one is needed");
  if (node.items.size() > max_tiers) {
    refuse(node.line, fmt::format("{} tiers, at most {} are possible", node.items.size(), max_tiers));
  }
  std::vector<Tier> tiers;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const int line = node.items[i].line;
    Tier tier = read_tier(node.items[i], source, i, i + 1 == node.items.size(), warnings);
    const auto same = [&](const Tier& other) { return other.name == tier.name; };
    if (std::any_of(tiers.begin(), tiers.end(), same)) {
      refuse(line, fmt::format("tier '{}' stands twice: tiers lie one in the other, innermost first", tier.name));
    }
    if (!tiers.empty() && tier.span_gpus != 0 &&
        (tier.span_gpus <= tiers.back().span_gpus || tier.span_gpus % tiers.back().span_gpus != 0)) {
      refuse(
          line,
          fmt::format("tier '{}' spans {} devices around '{}', which spans {}: a larger multiple is needed, the "
                      "nearest is {}",
                      tier.name, tier.span_gpus, tiers.back().name, tiers.back().span_gpus,
                      tiers.back().span_gpus * std::max<std::int64_t>(2, (tier.span_gpus + tiers.back().span_gpus / 2) /
                                                                             tiers.back().span_gpus)));
    }
    tiers.push_back(std::move(tier));
  }
  return tiers;
}

PointToPoint read_p2p(const YamlNode& node, std::string_view source, std::vector<std::string>& warnings) {
  YamlFields fields(node, source, "p2p", warnings);
  PointToPoint p2p;
  p2p.eager_limit_bytes = fields.whole("eager_limit_bytes", 0, std::int64_t{1} << 50).value_or(0);
  p2p.sm_fraction_while_active = fields.number_or("sm_fraction_while_active", share_range, 0);
  p2p.sm_fraction_while_waiting = fields.number_or("sm_fraction_while_waiting", share_range, 0);
  p2p.launch_us = fields.number_or("launch_us", latency_range, 0);
  fields.finish();
  return p2p;
}

std::vector<Straggler> read_stragglers(const YamlNode& node, std::string_view source,
                                       std::vector<std::string>& warnings) {
  if (node.kind != YamlNode::Kind::list || node.items.size() > max_stragglers) {
    throw InputError(
        fmt::format("{}: line {}: stragglers must be a list of at most {} entries", source, node.line, max_stragglers));
  }
  std::vector<Straggler> stragglers;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    YamlFields fields(node.items[i], source, fmt::format("stragglers[{}]", i), warnings);
    fields.require("rank");
    Straggler straggler;
    straggler.rank = static_cast<int>(fields.whole("rank", 0, 1 << 20).value_or(0));
    straggler.compute_scale = fields.number("compute_scale", scale_range);
    fields.finish();
    for (const Straggler& other : stragglers) {
      if (other.rank == straggler.rank) {
        fields.refuse(node.items[i].line, fmt::format("rank {} stands twice among the stragglers", straggler.rank));
      }
    }
    stragglers.push_back(straggler);
  }
  return stragglers;
}

std::string read_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw InputError(fmt::format("{} is a directory, a cluster file is needed", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const std::vector<std::string_view> names = cluster_names();
    throw InputError(fmt::format("cannot read cluster '{}': no such file{}, and the presets are {}", path,
                                 did_you_mean(path, names), fmt::join(names, ", ")));
  }
  std::string text;
  for (char c = 0; file.get(c);) {
    text.push_back(c);
    if (text.size() > max_file_bytes) {
      throw InputError(fmt::format("{} is larger than {} MiB, not a cluster file", path, max_file_bytes >> 20));
    }
  }
  return text;
}

std::string double_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < ' ') {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// The one list of keys behind both ways of writing: `item` is called per key with its value as both formats spell it,
// `open` and `close` around maps and lists.
template <class Writer>
void write(Writer& out, const Cluster& cluster) {
  out.item("name", double_quoted(cluster.name));
  out.open("gpu", '{');
  out.item("name", double_quoted(cluster.gpu.name));
  out.item("bf16_tflops_dense", fmt::to_string(cluster.gpu.bf16_tflops_dense));
  out.item("hbm_GBps", fmt::to_string(cluster.gpu.hbm_GBps));
  out.item("mem_GiB", fmt::to_string(cluster.gpu.mem_GiB));
  out.item("usable_mem_fraction", fmt::to_string(cluster.gpu.usable_mem_fraction));
  if (cluster.gpu.num_sms > 0) out.item("num_sms", fmt::to_string(cluster.gpu.num_sms));
  out.close('}');
  out.open("tiers", '[');
  for (const Tier& tier : cluster.tiers) {
    out.open("", '{');
    out.item("name", double_quoted(tier.name));
    if (tier.span_gpus > 0) out.item("span_gpus", fmt::to_string(tier.span_gpus));
    out.item("GBps_per_dir", fmt::to_string(tier.GBps_per_dir));
    out.item("efficiency", fmt::to_string(tier.efficiency));
    out.item("latency_us", fmt::to_string(tier.latency_us));
    out.item("shared_by_gpus", fmt::to_string(tier.shared_by_gpus));
    out.item("full_duplex", tier.full_duplex ? "true" : "false");
    out.close('}');
  }
  out.close(']');
  out.open("p2p", '{');
  out.item("eager_limit_bytes", fmt::to_string(cluster.p2p.eager_limit_bytes));
  out.item("sm_fraction_while_active", fmt::to_string(cluster.p2p.sm_fraction_while_active));
  out.item("sm_fraction_while_waiting", fmt::to_string(cluster.p2p.sm_fraction_while_waiting));
  out.item("launch_us", fmt::to_string(cluster.p2p.launch_us));
  out.close('}');
  if (!cluster.stragglers.empty()) {
    out.open("stragglers", '[');
    for (const Straggler& straggler : cluster.stragglers) {
      out.open("", '{');
      out.item("rank", fmt::to_string(straggler.rank));
      out.item("compute_scale", fmt::to_string(straggler.compute_scale));
      out.close('}');
    }
    out.close(']');
  }
  if (cluster.cores_per_node) out.item("cores_per_node", fmt::to_string(*cluster.cores_per_node));
}

class JsonWriter {
 public:
  void item(std::string_view key, std::string_view value) {
    comma();
    text_ += fmt::format("\"{}\":{}", key, value);
  }
  void open(std::string_view key, char bracket) {
    comma();
    if (!key.empty()) text_ += fmt::format("\"{}\":", key);
    text_ += bracket;
  }
  void close(char bracket) { text_ += bracket; }
  std::string take() { return text_ + "}"; }

 private:
  void comma() {
    if (text_.back() != '{' && text_.back() != '[') text_ += ',';
  }
  std::string text_ = "{";
};

// Block style; what is inside a list is written on one line each.
class YamlWriter {
 public:
  void item(std::string_view key, std::string_view value) {
    if (in_list_) {
      text_ += fmt::format("{}{}: {}", text_.ends_with('{') ? "" : ", ", key, value);
    } else {
      text_ += fmt::format("{}{}: {}\n", in_map_ ? "  " : "", key, value);
    }
  }
  void open(std::string_view key, char bracket) {
    if (key.empty()) {
      text_ += "  - {";
    } else {
      text_ += fmt::format("{}:\n", key);
      (bracket == '[' ? in_list_ : in_map_) = true;
    }
  }
  void close(char bracket) {
    if (bracket == '}' && in_list_) {
      text_ += "}\n";
    } else {
      in_list_ = in_map_ = false;
    }
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  bool in_list_ = false;
  bool in_map_ = false;
};

}  // namespace

ReadCluster load_cluster(std::string_view name_or_path) {
  if (std::optional<Cluster> preset = cluster_preset(name_or_path)) {
    return {.cluster = std::move(*preset), .warnings = {}};
  }
  const std::string path(name_or_path);
  return parse_cluster(read_file(path), path);
}

ReadCluster parse_cluster(std::string_view text, std::string_view source) {
  const YamlNode root = parse_yaml(text, source);
  ReadCluster read;
  YamlFields fields(root, source, "", read.warnings);
  read.cluster.name = fields.find("name") == nullptr ? std::string(source) : fields.text("name");
  read.cluster.gpu = read_gpu(fields.require("gpu"), source, read.warnings);
  read.cluster.tiers = read_tiers(fields.require("tiers"), source, read.warnings);
  if (const YamlNode* p2p = fields.find("p2p")) read.cluster.p2p = read_p2p(*p2p, source, read.warnings);
  if (const YamlNode* list = fields.find("stragglers")) {
    read.cluster.stragglers = read_stragglers(*list, source, read.warnings);
  }
  if (const std::optional<std::int64_t> cores = fields.whole("cores_per_node", 1, 1 << 20)) {
    read.cluster.cores_per_node = static_cast<int>(*cores);
  }
  fields.finish();
  return read;
}

std::string to_json(const Cluster& cluster) {
  JsonWriter out;
  write(out, cluster);
  return out.take();
}

std::string to_yaml(const Cluster& cluster) {
  YamlWriter out;
  write(out, cluster);
  return out.take();
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/volume.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "compare_residual.hpp"
#include "memory.hpp"
#include "output.hpp"
#include "plumb/sizing/residual_traffic.hpp"
#include "resolve.hpp"

namespace plumb::cli {

namespace {

using Json = nlohmann::ordered_json;

struct PolicyCount {
  Policy policy = Policy::standard;
  PolicyVolume volume;
  std::int64_t backward_units = 0;
};

struct Volumes {
  VolumeFormula formula;
  std::vector<PolicyCount> counted;  // by policies_of()
};

Volumes measure(const Layout& layout, const DepthMap& depth) {
  Volumes volumes{.formula = volume_formula(layout, depth), .counted = {}};
  for (const Policy policy : policies_of(depth.residual())) {
    require_memory(bytes_needed(Product::routing, layout, depth, policy, false), "counting " + size_text(layout));
    const Routing routing = make_routing(layout, depth, policy);
    volumes.counted.push_back({policy, count_volume(routing, layout), backward_units(routing)});
  }
  return volumes;
}

Json to_json(const PolicyVolume& volume, bool with_urgent) {
  Json hops = Json::array();
  for (const HopVolume& hop : volume.hops) {
    Json row{{"from_chunk", hop.from_chunk.value},
             {"to_chunk", hop.to_chunk.value},
             {"from_rank", hop.from_rank.value},
             {"to_rank", hop.to_rank.value},
             {"units", hop.units}};
    if (with_urgent) {
      row["urgent_units"] = hop.urgent_units;
    }
    hops.push_back(std::move(row));
  }
  return {{"units", volume.units},
          {"block_units", volume.block_units},
          {"embedding_units", volume.embedding_units},
          {"partial_units", volume.partial_units},
          {"peak_hop_units", volume.peak_hop_units},
          {"hops", std::move(hops)}};
}

Json checks_of(const Volumes& volumes) {
  Json checks;
  bool backward_equals_forward = true;
  Json naive_equals_paper;  // null unless aligned
  for (const PolicyCount& counted : volumes.counted) {
    backward_equals_forward = backward_equals_forward && counted.backward_units == counted.volume.units;
    if (counted.policy == Policy::naive) {
      if (volumes.formula.aligned) {
        naive_equals_paper = static_cast<double>(counted.volume.block_units) == volumes.formula.naive_paper_units;
      }
      continue;
    }
    checks[fmt::format("{}_equals_exact_minimum", to_string(counted.policy))] =
        counted.volume.units == volumes.formula.exact_minimum_units;
  }
  if (volumes.counted.front().policy == Policy::naive) checks["naive_equals_paper"] = std::move(naive_equals_paper);
  checks["backward_equals_forward"] = backward_equals_forward;
  return checks;
}

void print_json(const Layout& layout, const Depth& depth, const UnitBytes& bytes, const Volumes& volumes) {
  const VolumeFormula& formula = volumes.formula;
  Json out;
  out["layout"] = {{"pp", layout.pp()},
                   {"vp", layout.vp()},
                   {"chunks", layout.num_chunks()},
                   {"placement", to_string(layout.placement())},
                   {"sublayers", depth.map.sublayers()},
                   {"block_sublayers", depth.map.block_sublayers()},
                   {"blocks", depth.map.num_blocks()},
                   {"cuts", std::vector<int>(depth.map.cuts().begin(), depth.map.cuts().end())}};
  for (const PolicyCount& counted : volumes.counted) {
    out[std::string(to_string(counted.policy))] = to_json(counted.volume, counted.policy == Policy::cached);
  }
  out["formula"] = {{"aligned", formula.aligned},
                    {"blocks_per_chunk", formula.blocks_per_chunk},
                    {"naive_paper_units", formula.naive_paper_units},
                    {"cached_paper_units", formula.cached_paper_units},
                    {"exact_minimum_units", formula.exact_minimum_units}};
  out["checks"] = checks_of(volumes);
  out["forward_bytes_per_unit"] = bytes.value;
  out["backward_bytes_per_unit"] = bytes.gradient_wire;
  out["residual"] = to_string(depth.design);
  out["tensors_per_unit"] = depth.design.num_streams;
  fmt::print("{}\n", out.dump());
}

std::string unit_text(const ResidualDesign& design) {
  return design.num_streams == 1 ? "[tokens, d] tensors" : fmt::format("{} [tokens, d] tensors", design.num_streams);
}

void print_table(const Layout& layout, const Depth& depth, const UnitBytes& bytes, const Volumes& volumes) {
  const VolumeFormula& formula = volumes.formula;
  const bool has_blocks = depth.map.residual() != Residual::standard;
  fmt::print(
      "{}\n{} ranks x {} virtual stages = {} chunks ({} placement), {}; units are {} per microbatch, forward\n\n",
      depth.description, layout.pp(), layout.vp(), layout.num_chunks(), to_string(layout.placement()),
      has_blocks ? fmt::format("{} blocks", depth.map.num_blocks()) : "no blocks", unit_text(depth.design));
  Table table({"policy", "units", "blocks", "embedding", "partials", "peak hop", "forward bytes", "backward bytes"});
  for (const PolicyCount& counted : volumes.counted) {
    const PolicyVolume& volume = counted.volume;
    table.add({std::string(to_string(counted.policy)), fmt::to_string(volume.units), fmt::to_string(volume.block_units),
               fmt::to_string(volume.embedding_units), fmt::to_string(volume.partial_units),
               fmt::to_string(volume.peak_hop_units),
               bytes_text(static_cast<double>(volume.units) * static_cast<double>(bytes.value)),
               bytes_text(static_cast<double>(volume.units) * static_cast<double>(bytes.gradient_wire))});
  }
  table.add({"formula (exact minimum)", fmt::to_string(formula.exact_minimum_units)});
  fmt::print("{}", table.text());
  if (!has_blocks) return;
  fmt::print("\nthe paper's formulas, without embedding and partials{}: naive {:g}, cached {:g}\n",
             formula.aligned ? "" : " (an estimate: chunks do not close equal whole blocks)", formula.naive_paper_units,
             formula.cached_paper_units);
  if (layout.vp() == 1 && layout.pp() > 1) {
    fmt::print("V = 1: every hop is a first visit, so a cache saves no volume; forwarding on arrival still hides it\n");
  }
}

}  // namespace

int run_volume(const Options& options) {
  if (options.compare_residual) return run_compare_residual_volume(options);
  const Layout layout = resolve_layout(options);
  const Depth depth = resolve_depth(options, layout);
  const UnitBytes bytes = resolve_bytes(options, depth.hidden);
  const Volumes volumes = measure(layout, depth.map);
  if (options.json) {
    print_json(layout, depth, bytes, volumes);
  } else {
    print_table(layout, depth, bytes, volumes);
  }
  return 0;
}

}  // namespace plumb::cli

// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/volume.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "output.hpp"
#include "plumb/schedule/error.hpp"
#include "resolve.hpp"

namespace plumb::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr Policy policies[] = {Policy::naive, Policy::relay, Policy::cached, Policy::direct};

struct Volumes {
  VolumeFormula formula;
  std::vector<PolicyVolume> counted;  // like `policies`
  std::vector<bool> equal_formula;
  std::vector<std::int64_t> backward_units;
};

// The backward sums travel over the same holdings; counted from the parents' side, apart from the forward count.
std::int64_t backward_units(const Routing& routing) {
  std::int64_t sum = 0;
  for (const Holding& holding : routing.holdings) {
    sum += static_cast<std::int64_t>(holding.children.size());
  }
  for (const Transfer& transfer : routing.transfers) {
    sum += transfer.partial ? 1 : 0;
  }
  return sum;
}

Volumes measure(const Layout& layout, const DepthMap& depth) {
  Volumes volumes{.formula = volume_formula(layout, depth), .counted = {}, .equal_formula = {}, .backward_units = {}};
  for (const Policy policy : policies) {
    const Routing routing = make_routing(layout, depth, policy);
    volumes.counted.push_back(count_volume(routing, layout));
    volumes.equal_formula.push_back(volumes.counted.back().units == expected_units(layout, depth, policy));
    volumes.backward_units.push_back(backward_units(routing));
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

void print_json(const Layout& layout, const DepthMap& depth, const UnitBytes& bytes, const Volumes& volumes) {
  const VolumeFormula& formula = volumes.formula;
  Json out;
  out["layout"] = {{"pp", layout.pp()},
                   {"vp", layout.vp()},
                   {"chunks", layout.num_chunks()},
                   {"placement", to_string(layout.placement())},
                   {"sublayers", depth.sublayers()},
                   {"block_sublayers", depth.block_sublayers()},
                   {"blocks", depth.num_blocks()},
                   {"cuts", std::vector<int>(depth.cuts().begin(), depth.cuts().end())}};
  bool backward_equals_forward = true;
  for (std::size_t i = 0; i < std::size(policies); ++i) {
    out[std::string(to_string(policies[i]))] = to_json(volumes.counted[i], policies[i] == Policy::cached);
    backward_equals_forward = backward_equals_forward && volumes.backward_units[i] == volumes.counted[i].units;
  }
  out["formula"] = {{"aligned", formula.aligned},
                    {"blocks_per_chunk", formula.blocks_per_chunk},
                    {"naive_paper_units", formula.naive_paper_units},
                    {"cached_paper_units", formula.cached_paper_units},
                    {"exact_minimum_units", formula.exact_minimum_units}};
  const auto naive_without_embedding = static_cast<double>(volumes.counted[0].block_units);
  Json naive_equals_paper;  // null unless aligned
  if (formula.aligned) {
    naive_equals_paper = naive_without_embedding == formula.naive_paper_units;
  }
  out["checks"] = {{"relay_equals_exact_minimum", volumes.counted[1].units == formula.exact_minimum_units},
                   {"cached_equals_exact_minimum", volumes.counted[2].units == formula.exact_minimum_units},
                   {"direct_equals_exact_minimum", volumes.counted[3].units == formula.exact_minimum_units},
                   {"naive_equals_paper", std::move(naive_equals_paper)},
                   {"backward_equals_forward", backward_equals_forward}};
  out["forward_bytes_per_unit"] = bytes.value;
  out["backward_bytes_per_unit"] = bytes.gradient_wire;
  fmt::print("{}\n", out.dump());
}

void print_table(const Layout& layout, const Depth& depth, const UnitBytes& bytes, const Volumes& volumes) {
  const VolumeFormula& formula = volumes.formula;
  fmt::print(
      "{}\n{} ranks x {} virtual stages = {} chunks ({} placement), {} blocks; units are [tokens, d] tensors per "
      "microbatch, forward\n\n",
      depth.description, layout.pp(), layout.vp(), layout.num_chunks(), to_string(layout.placement()),
      depth.map.num_blocks());
  Table table({"policy", "units", "blocks", "embedding", "partials", "peak hop", "forward bytes", "backward bytes"});
  for (std::size_t i = 0; i < std::size(policies); ++i) {
    const PolicyVolume& volume = volumes.counted[i];
    table.add({std::string(to_string(policies[i])), fmt::to_string(volume.units), fmt::to_string(volume.block_units),
               fmt::to_string(volume.embedding_units), fmt::to_string(volume.partial_units),
               fmt::to_string(volume.peak_hop_units),
               bytes_text(static_cast<double>(volume.units) * static_cast<double>(bytes.value)),
               bytes_text(static_cast<double>(volume.units) * static_cast<double>(bytes.gradient_wire))});
  }
  table.add({"formula (exact minimum)", fmt::to_string(formula.exact_minimum_units)});
  fmt::print("{}", table.text());
  fmt::print("\nthe paper's formulas, without embedding and partials{}: naive {:g}, cached {:g}\n",
             formula.aligned ? "" : " (an estimate: chunks do not close equal whole blocks)", formula.naive_paper_units,
             formula.cached_paper_units);
  if (layout.vp() == 1 && layout.pp() > 1) {
    fmt::print("V = 1: every hop is a first visit, so a cache saves no volume; forwarding on arrival still hides it\n");
  }
}

}  // namespace

int run_volume(const Options& options) {
  const Layout layout = resolve_layout(options);
  const Depth depth = resolve_depth(options, layout);
  if (depth.map.residual() == Residual::standard) {
    throw InputError("--residual standard has no blocks to count: one tensor crosses each boundary between ranks");
  }
  const UnitBytes bytes = resolve_bytes(options, depth.hidden);
  const Volumes volumes = measure(layout, depth.map);
  if (options.json) {
    print_json(layout, depth.map, bytes, volumes);
  } else {
    print_table(layout, depth, bytes, volumes);
  }
  return 0;
}

}  // namespace plumb::cli

// SPDX-License-Identifier: Apache-2.0
#include "resolve.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "auto.hpp"
#include "plumb/cache/cuts.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/megatron_layout.hpp"
#include "plumb/schedule/named.hpp"
#include "plumb/sizing/model_config.hpp"
#include "schedule_file.hpp"

namespace plumb::cli {

namespace {

constexpr int max_sublayers = 1 << 20;

int in_range(std::string_view flag, int value, int least, int most) {
  if (value < least || value > most) {
    throw InputError(fmt::format("{} is {}, legal are {} to {}", flag, value, least, most));
  }
  return value;
}

// Everything about depth but the cuts. `units` is what even cuts deal out: decoder layers where they are known.
struct Sublayers {
  int count = 0;
  int block = 0;
  int units = 0;
  int hidden = 0;
  std::string description;
};

Sublayers from_decoder_layers(const Options& options, const ResidualDesign& design) {
  ModelConfig model{.name = "model", .decoder_layers = 0, .hidden = 1024, .block_decoder_layers = {}};
  if (options.model) {
    model = load_model(*options.model);
  } else {
    model.decoder_layers = in_range("--layers", *options.layers, 1, max_sublayers / sublayers_per_decoder_layer);
    model.block_decoder_layers = automatic_block_layers(model.decoder_layers);
  }
  if (options.block_layers) {
    model.block_decoder_layers = in_range("--block-layers", *options.block_layers, 1, model.decoder_layers);
  }
  if (takes_block_size(design) && !model.block_decoder_layers) {
    throw InputError(
        fmt::format("{} has no attn_res_block_size, which --residual {} needs: give --block-layers K (automatic would "
                    "be {}), or leave it an ordinary residual stream",
                    model.name, to_string(design), automatic_block_layers(model.decoder_layers)));
  }
  const int block_layers = model.block_decoder_layers.value_or(model.decoder_layers);
  Sublayers depth{.count = model.sublayers(),
                  .block = block_layers * sublayers_per_decoder_layer,
                  .units = model.decoder_layers,
                  .hidden = model.hidden,
                  .description = fmt::format("{}: {} decoder layers = {} sublayers", one_line(model.name),
                                             model.decoder_layers, model.sublayers())};
  if (takes_block_size(design)) {
    depth.description += fmt::format(", {} decoder layers = {} sublayers per block", block_layers, depth.block);
  }
  return depth;
}

Sublayers from_sublayers(const Options& options, const ResidualDesign& design) {
  const int count = in_range("--sublayers", *options.sublayers, 1, max_sublayers);
  const int block = options.block ? in_range("--block", *options.block, 1, count) : automatic_block_layers(count);
  std::string description = fmt::format("{} sublayers", count);
  if (takes_block_size(design)) {
    description += fmt::format(", {} per block", block);
  }
  return {.count = count, .block = block, .units = count, .hidden = 1024, .description = std::move(description)};
}

Sublayers resolve_sublayers(const Options& options, const ResidualDesign& design) {
  const int given = (options.model ? 1 : 0) + (options.layers ? 1 : 0) + (options.sublayers ? 1 : 0);
  if (given != 1) {
    throw InputError(given == 0 ? "no depth given: use --model NAME|config.json, --layers N or --sublayers L"
                                : "--model, --layers and --sublayers exclude each other");
  }
  if (!takes_block_size(design) && (options.block || options.block_layers)) {
    throw InputError(fmt::format("{} does not go with --residual {}", options.block ? "--block" : "--block-layers",
                                 to_string(design)));
  }
  if (options.sublayers && options.block_layers) {
    throw InputError("--block-layers counts decoder layers and does not go with --sublayers: use --block");
  }
  if (!options.sublayers && options.block) {
    throw InputError("--block counts sublayers and goes with --sublayers only: use --block-layers");
  }
  return options.sublayers ? from_sublayers(options, design) : from_decoder_layers(options, design);
}

std::vector<int> parse_cuts(const std::string& text, int sublayers, int chunks) {
  std::vector<int> cuts;
  std::string_view rest = text;
  while (true) {
    const std::string_view item = rest.substr(0, rest.find(','));
    int value = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
    if (error != std::errc() || end != item.data() + item.size()) {
      throw InputError(fmt::format(
          "--cuts '{}': '{}' is not a sublayer count; legal are even, auto, or {} counts a,b,...", text, item, chunks));
    }
    cuts.push_back(value);
    if (item.size() == rest.size()) {
      break;
    }
    rest.remove_prefix(item.size() + 1);
  }
  if (static_cast<int>(cuts.size()) == chunks - 1) {
    if (!cuts.empty() && cuts.back() == sublayers) {
      throw InputError(fmt::format(
          "--cuts has {} counts for {} chunks and the last is {}, all there is: nothing is left for the last chunk; is "
          "one forgotten? If it shall be empty, give {} once more",
          cuts.size(), chunks, sublayers, sublayers));
    }
    cuts.push_back(sublayers);
  }
  if (static_cast<int>(cuts.size()) != chunks) {
    throw InputError(
        fmt::format("--cuts has {} counts, {} chunks need {} or {}", cuts.size(), chunks, chunks - 1, chunks));
  }
  return cuts;
}

// What a model's own config says; where nothing does, blocks.
std::string_view residual_of_model(const Options& options) {
  const bool ordinary = options.model && !options.block_layers && !load_model(*options.model).block_decoder_layers;
  return ordinary ? "standard" : "attnres-block";
}

}  // namespace

ResidualDesign resolve_design(const Options& options) {
  const ResidualDesign design =
      parse_residual_design(options.residual ? std::string_view(*options.residual) : residual_of_model(options));
  constexpr std::array<std::string_view, 4> counting = {"volume", "plan", "sim", "size"};
  const bool runs = std::find(counting.begin(), counting.end(), options.subcommand) == counting.end();
  if (runs && !is_run(design)) {
    throw InputError(
        fmt::format("--residual {} is counted and simulated (plumb volume, plan and sim) but not run: legal "
                    "here are standard, attnres-block and attnres-full",
                    to_string(design)));
  }
  return design;
}

std::vector<OutputFile> files_read(const Options& options) {
  return {{"--model", options.model.value_or("")},
          {"--cluster", options.cluster.value_or("")},
          {"--profile", options.profile.value_or("")},
          {"--against", options.against},
          {"--schedule", options.schedule_file ? *options.schedule : ""}};
}

void apply_layout(Options& options) {
  if (!options.layout) {
    return;
  }
  if (options.cuts != "even") {
    throw InputError("--layout and --cuts exclude each other");
  }
  const MegatronLayout layout = parse_megatron_layout(*options.layout);
  const int vp = layout.virtual_stages(options.pp);
  if (options.vp != 1 && options.vp != vp) {
    throw InputError(fmt::format("--layout has {} stages, so V is {} on {} ranks, not --vp {}", layout.stages.size(),
                                 vp, options.pp, options.vp));
  }
  const int layers = layout.decoder_layers();
  if (options.layers.value_or(layers) != layers) {
    throw InputError(fmt::format("--layout has {} decoder layers t, --layers {}", layers, *options.layers));
  }
  if (options.sublayers && *options.sublayers != layout.cuts().back()) {
    throw InputError(fmt::format("--layout has {} decoder layers t, which are {} sublayers, --sublayers {}", layers,
                                 layout.cuts().back(), *options.sublayers));
  }
  options.vp = vp;
  options.cuts = fmt::format("{}", fmt::join(layout.cuts(), ","));
  if (!gives_depth(options)) {
    options.layers = layers;
  }
}

ScheduleKind named_schedule(const std::string& name) {
  try {
    return parse_schedule_kind(name);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{} and auto", error.what()));
  }
}

Layout resolve_layout(const Options& options) {
  const bool named =
      options.schedule && !options.schedule_file && (!wants_auto(options) || options.subcommand == "volume");
  const ScheduleKind kind = named ? named_schedule(*options.schedule) : default_schedule(options.vp);
  const Placement placement = options.placement ? parse_placement(*options.placement) : placement_of(kind);
  // A count per microbatch does not depend on how many there are.
  const int automatic = options.subcommand == "volume" ? 1 : 2 * std::clamp(options.pp, 1, 1 << 20);
  const int microbatches = options.microbatches.value_or(automatic);
  return Layout(options.pp, options.vp, microbatches, placement);
}

Depth resolve_depth(const Options& options, const Layout& layout) {
  const ResidualDesign design = resolve_design(options);
  const Residual residual = lowered(design);
  const Sublayers sublayers = resolve_sublayers(options, design);
  require_depth(design, sublayers.count);
  const int chunks = layout.num_chunks();
  const int block = sublayers_per_source(design, sublayers.block);
  std::vector<int> cuts;
  if (options.cuts == "even") {
    cuts = DepthMap::even_cuts(sublayers.count, sublayers.units, chunks);
  } else if (options.cuts == "auto") {
    cuts = least_traffic_cuts(layout, {.sublayers = sublayers.count,
                                       .units = sublayers.units,
                                       .block = block,
                                       .residual = residual,
                                       .policy = parse_policy(options.cache.value_or("cached"))});
  } else {
    cuts = parse_cuts(options.cuts, sublayers.count, chunks);
    if (options.layout && cuts.back() != sublayers.count) {
      throw InputError(
          fmt::format("--layout \"{}\" has {} decoder layers t, which are {} sublayers, but the depth is {}",
                      *options.layout, cuts.back() / sublayers_per_decoder_layer, cuts.back(), sublayers.description));
    }
  }
  std::string description = sublayers.description;
  if (!is_run(design)) description += fmt::format("; {}: {}", to_string(design), payload_text(design));
  if (options.cuts == "auto") description += fmt::format("; cuts {}", fmt::join(cuts, ","));
  const int hidden = options.hidden ? in_range("--hidden", *options.hidden, 1, 1 << 20) : sublayers.hidden;
  return {.map = DepthMap(sublayers.count, block, std::move(cuts), residual),
          .design = design,
          .description = std::move(description),
          .hidden = hidden};
}

bool gives_depth(const Options& options) { return options.model || options.layers || options.sublayers; }

Depth resolve_depth_or_none(const Options& options, const Layout& layout) {
  const bool says_nothing = !gives_depth(options) && !options.block && !options.block_layers && !options.residual &&
                            !options.cache && options.cuts == "even";
  if (!says_nothing) {
    return resolve_depth(options, layout);
  }
  const int chunks = layout.num_chunks();
  return {.map = DepthMap(chunks, chunks, DepthMap::even_cuts(chunks, chunks, chunks), Residual::standard),
          .design = {.kind = ResidualKind::standard},
          .description = "no depth given: an ordinary residual, one tensor per hop",
          .hidden = options.hidden.value_or(1024)};
}

Depth resolve_depth_of(const Options& options, const Layout& layout) {
  return options.subcommand == "plan" ? resolve_depth_or_none(options, layout) : resolve_depth(options, layout);
}

ScheduleRequest resolve_request(const Options& options, int vp) {
  ScheduleRequest request{.kind = options.schedule ? named_schedule(*options.schedule) : default_schedule(vp)};
  if ((options.group || options.group_rule) && !takes_group(request.kind)) {
    throw InputError(fmt::format("--group{} goes with --schedule interleaved and zb-h1 only, not with {}",
                                 options.group ? "" : "-rule", to_string(request.kind)));
  }
  if (options.group_rule) {
    request.group_rule = parse_group_rule(*options.group_rule);
  }
  if (options.group && request.group_rule == GroupRule::torch) {
    throw InputError("--group does not go with --group-rule torch, whose max(1, M / P) equal groups follow from M");
  }
  request.group = options.group;
  return request;
}

Schedule resolve_schedule(const Options& options, const Layout& layout) {
  if (wants_auto(options)) {
    return search_schedule(options, layout).schedule;
  }
  if (options.memory_chunks) {
    throw InputError(
        "--memory-chunks goes with --schedule auto only: the memory of the others follows from their order");
  }
  if (options.schedule_file) return options.schedule_file->schedule;
  return make_schedule(resolve_request(options, layout.vp()), layout);
}

Policy resolve_policy(const Options& options, const DepthMap& depth) {
  const Policy named = parse_policy(options.cache.value_or("cached"));
  if (depth.residual() != Residual::standard) {
    return named;
  }
  if (options.cache) {
    throw InputError(fmt::format("--cache does not go with --residual {}, which has no blocks to route",
                                 to_string(resolve_design(options))));
  }
  return Policy::standard;
}

UnitBytes resolve_bytes(const Options& options, int hidden) {
  int storage_bytes = 0;
  if (options.dtype == "bf16" || options.dtype == "fp16") {
    storage_bytes = 2;
  } else if (options.dtype == "fp32") {
    storage_bytes = 4;
  } else if (options.dtype == "fp64") {
    storage_bytes = 8;
  } else {
    throw InputError(fmt::format("--dtype '{}' is unknown, legal are bf16, fp16, fp32 and fp64", options.dtype));
  }
  in_range("--tokens", options.tokens, 1, 1 << 30);
  const std::int64_t width = std::int64_t{hidden} * resolve_design(options).num_streams;
  return unit_bytes(options.tokens, width, storage_bytes, parse_gradient_wire(options.grad_wire));
}

}  // namespace plumb::cli

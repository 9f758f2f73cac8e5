// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/residual_design.hpp"

#include <array>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "did_you_mean.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/sizing/model_config.hpp"

namespace plumb {
namespace {

struct KindName {
  ResidualKind kind;
  std::string_view name;
};

constexpr std::array<KindName, 6> kind_names = {{{ResidualKind::standard, "standard"},
                                                 {ResidualKind::deepnet, "deepnet"},
                                                 {ResidualKind::denseformer, "denseformer"},
                                                 {ResidualKind::muddformer, "muddformer"},
                                                 {ResidualKind::attnres_full, "attnres-full"},
                                                 {ResidualKind::attnres_block, "attnres-block"}}};

constexpr std::string_view combined = "+attnres-block";

std::string_view name_of(StreamKind streams) { return streams == StreamKind::hyper ? "hc" : "mhc"; }

[[noreturn]] void refuse(std::string_view text) {
  // The last ones are what people write instead.
  constexpr std::array<std::string_view, 13> known = {
      "standard", "deepnet", "denseformer",        "muddformer",          "attnres-full", "attnres-block",
      "hc:4",     "mhc:4",   "hc:4+attnres-block", "mhc:4+attnres-block", "hc",           "mhc",
      "attnres"};
  std::string near = did_you_mean(text, known);
  for (const auto& [word, meant] :
       {std::pair{"'hc'", "'hc:4'"}, {"'mhc'", "'mhc:4'"}, {"'attnres'", "'attnres-block'"}}) {
    if (near == fmt::format(", did you mean {}?", word)) near = fmt::format(", did you mean {}?", meant);
  }
  throw InputError(fmt::format(
      "--residual '{}' is unknown{}{} legal are standard, hc:M, mhc:M (M streams, 1 to {}), denseformer, muddformer, "
      "deepnet, attnres-full, attnres-block, hc:M+attnres-block and mhc:M+attnres-block",
      text, near, near.empty() ? ";" : "", max_residual_streams));
}

// "4" of "hc:4"; digits only, no leading zero.
int parse_streams(std::string_view text, std::string_view digits) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size() && digits[0] != '-';
  const bool too_many = error == std::errc::result_out_of_range && end == digits.data() + digits.size();
  if (!too_many && (!is_number || (digits.size() > 1 && digits[0] == '0'))) {
    throw InputError(fmt::format("--residual '{}': '{}' is no number of streams, legal are 1 to {}", text, digits,
                                 max_residual_streams));
  }
  if (too_many || value < 1 || value > max_residual_streams) {
    throw InputError(
        fmt::format("--residual '{}' has {} streams, legal are 1 to {}", text, digits, max_residual_streams));
  }
  return value;
}

std::optional<ResidualDesign> parse_streamed(std::string_view text) {
  for (const StreamKind streams : {StreamKind::hyper, StreamKind::hyper_constrained}) {
    const std::string_view name = name_of(streams);
    if (!text.starts_with(name) || text.substr(name.size(), 1) != ":") continue;
    std::string_view digits = text.substr(name.size() + 1);
    ResidualDesign design{.kind = ResidualKind::standard, .streams = streams, .num_streams = 1};
    if (const std::size_t plus = digits.find('+'); plus != std::string_view::npos && plus > 0) {
      if (digits.substr(plus) != combined) {
        throw InputError(fmt::format("--residual '{}': streams go with '{}' only, not with '{}'", text, combined,
                                     digits.substr(plus)));
      }
      design.kind = ResidualKind::attnres_block;
      digits = digits.substr(0, plus);
    }
    design.num_streams = parse_streams(text, digits);
    return design;
  }
  return std::nullopt;
}

}  // namespace

std::string to_string(const ResidualDesign& design) {
  std::string_view kind = "?";
  for (const KindName& each : kind_names) {
    if (each.kind == design.kind) kind = each.name;
  }
  if (design.streams == StreamKind::none) return std::string(kind);
  return fmt::format("{}:{}{}", name_of(design.streams), design.num_streams,
                     design.kind == ResidualKind::attnres_block ? combined : "");
}

ResidualDesign parse_residual_design(std::string_view text) {
  for (const KindName& each : kind_names) {
    if (text == each.name) return {.kind = each.kind};
  }
  if (text.find("former:") != std::string_view::npos) {
    throw InputError(fmt::format(
        "--residual '{}': variants with a dilation or period are not counted, legal is '{}'; with both equal "
        "to K, what crosses a boundary is that of attnres-block with --block-layers K",
        text, text.substr(0, text.find(':'))));
  }
  if (const std::optional<ResidualDesign> design = parse_streamed(text)) return *design;
  refuse(text);
}

std::vector<ResidualDesign> all_residual_designs() {
  constexpr int streams = 4;
  return {{.kind = ResidualKind::standard},
          {.kind = ResidualKind::deepnet},
          {.kind = ResidualKind::standard, .streams = StreamKind::hyper, .num_streams = streams},
          {.kind = ResidualKind::standard, .streams = StreamKind::hyper_constrained, .num_streams = streams},
          {.kind = ResidualKind::denseformer},
          {.kind = ResidualKind::muddformer},
          {.kind = ResidualKind::attnres_full},
          {.kind = ResidualKind::attnres_block},
          {.kind = ResidualKind::attnres_block, .streams = StreamKind::hyper_constrained, .num_streams = streams}};
}

Residual lowered(const ResidualDesign& design) {
  switch (design.kind) {
    case ResidualKind::standard:
    case ResidualKind::deepnet:
      return Residual::standard;
    case ResidualKind::attnres_full:
      return Residual::attnres_full;
    // One source per decoder layer, and between its two sublayers the one tensor of an ordinary stream.
    case ResidualKind::denseformer:
    case ResidualKind::muddformer:
    case ResidualKind::attnres_block:
      break;
  }
  return Residual::attnres_block;
}

int sublayers_per_source(const ResidualDesign& design, int block) {
  switch (design.kind) {
    case ResidualKind::denseformer:
    case ResidualKind::muddformer:
      return sublayers_per_decoder_layer;
    case ResidualKind::attnres_full:
      return 1;
    case ResidualKind::standard:
    case ResidualKind::deepnet:
    case ResidualKind::attnres_block:
      break;
  }
  return block;
}

bool takes_block_size(const ResidualDesign& design) { return design.kind == ResidualKind::attnres_block; }

bool is_run(const ResidualDesign& design) {
  return design.streams == StreamKind::none &&
         (design.kind == ResidualKind::standard || design.kind == ResidualKind::attnres_full ||
          design.kind == ResidualKind::attnres_block);
}

std::string payload_text(const ResidualDesign& design) {
  const std::string tensors =
      design.streams == StreamKind::none ? "one tensor" : fmt::format("{} tensors", design.num_streams);
  switch (design.kind) {
    case ResidualKind::standard:
    case ResidualKind::deepnet:
      break;
    case ResidualKind::denseformer:
    case ResidualKind::muddformer:
      return "every decoder layer's output, one tensor each";
    case ResidualKind::attnres_full:
      return "every sublayer's output, one tensor each";
    case ResidualKind::attnres_block:
      return fmt::format("every block and the open partial, {} each", tensors);
  }
  return tensors + " per hop";
}

void require_depth(const ResidualDesign& design, int sublayers) {
  const bool of_layers = design.kind == ResidualKind::denseformer || design.kind == ResidualKind::muddformer;
  if (of_layers && sublayers % sublayers_per_decoder_layer != 0) {
    throw InputError(
        fmt::format("{} averages over decoder layers of 2 sublayers and does not go with {} sublayers: the "
                    "nearest is {}",
                    to_string(design), sublayers, sublayers + 1));
  }
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "cluster.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "auto.hpp"
#include "costs.hpp"
#include "output.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/sizing/cluster_file.hpp"
#include "plumb/sizing/layer_costs.hpp"
#include "plumb/sizing/pipeline_costs.hpp"
#include "plumb/sizing/pipeline_network.hpp"
#include "plumb/sizing/profile.hpp"
#include "resolve.hpp"

namespace plumb::cli {

namespace {

Recompute resolve_recompute(const Options& options) {
  const std::string name = options.recompute.value_or("none");
  if (name == "none") return Recompute::none;
  if (name == "selective") return Recompute::selective;
  if (name == "full") return Recompute::full;
  throw InputError(fmt::format("--recompute '{}' is unknown, legal are none, selective and full", name));
}

}  // namespace

Degrees resolve_degrees(const Options& options) {
  return {.tp = options.tp.value_or(1), .ep = options.ep.value_or(1), .dp = options.dp.value_or(1)};
}

Batch resolve_batch(const Options& options, const DepthMap& depth) {
  Batch batch{.tokens = options.tokens,
              .sequence = options.sequence.value_or(options.tokens),
              .degrees = resolve_degrees(options),
              .recompute = resolve_recompute(options),
              .block_sublayers = depth.residual() == Residual::standard ? 0 : depth.block_sublayers(),
              .residual = resolve_design(options)};
  if (batch.sequence < 1 || batch.tokens % batch.sequence != 0) {
    throw InputError(fmt::format("--sequence {} does not divide --tokens {}: a microbatch is whole sequences",
                                 batch.sequence, batch.tokens));
  }
  return batch;
}

Sharding resolve_sharding(const Options& options) { return parse_sharding(options.sharding.value_or("none")); }

void require_cost_flags_fit(const Options& options) {
  const std::pair<std::string_view, bool> with_cluster[] = {{"--tp", options.tp.has_value()},
                                                            {"--ep", options.ep.has_value()},
                                                            {"--dp", options.dp.has_value()},
                                                            {"--sequence", options.sequence.has_value()},
                                                            {"--recompute", options.recompute.has_value()},
                                                            {"--sharding", options.sharding.has_value()},
                                                            {"--show-cluster", options.show_cluster}};
  for (const auto& [flag, given] : with_cluster) {
    if (given && !options.cluster) throw InputError(fmt::format("{} goes with --cluster only", flag));
  }
  if (!options.cluster && !options.profile) return;
  const std::string_view source = options.profile ? "--profile" : "--cluster";
  const std::pair<std::string_view, bool> times[] = {{"--action-us", !options.action_us.empty()},
                                                     {"--costs", options.costs.has_value()},
                                                     {"--teraflops", options.teraflops.has_value()}};
  for (const auto& [flag, given] : times) {
    if (given)
      throw InputError(fmt::format("{} and {} exclude each other: both say what computations take", source, flag));
  }
  const std::pair<std::string_view, bool> by_layers[] = {{"--sequence", options.sequence.has_value()},
                                                         {"--recompute", options.recompute.has_value()},
                                                         {"--ep", options.ep.has_value()},
                                                         {"--sharding", options.sharding.has_value()}};
  for (const auto& [flag, given] : by_layers) {
    if (given && options.profile)
      throw InputError(fmt::format("{} does not go with --profile, whose times are measured", flag));
  }
  if (!options.cluster) return;
  if (gives_link(options)) {
    throw InputError("--cluster says what messages take: --hop-us, --hop-GBps and --unit-us do not go with it");
  }
  if (options.profile) return;
  if (!options.model) throw InputError("--cluster needs --model, whose layers it costs");
  if (options.hidden) throw InputError("--hidden does not go with --cluster: the model says its width");
  if (options.dtype != "bf16" && options.dtype != "fp16") {
    throw InputError(
        fmt::format("--dtype {} does not go with --cluster, whose rates are those of bf16 and fp16", options.dtype));
  }
}

CostModel resolve_cluster_costs(const Options& options, const DepthMap& depth, const UnitBytes& bytes) {
  const Layout layout = resolve_layout(options);
  std::vector<ActionTimes> times;
  if (options.profile) {
    const Profile profile = load_profile(*options.profile);
    times = profile_times(profile, depth.cuts(), *options.profile);
  }
  if (!options.cluster) return CostModel(std::move(times), resolve_link(options, bytes), bytes);
  const Cluster cluster = load_cluster(*options.cluster).cluster;
  if (!cluster.stragglers.empty() && wants_auto(options) && !options.placement) {
    throw InputError("--schedule auto tries placements, and stragglers need to know theirs: give --placement");
  }
  const Degrees degrees = resolve_degrees(options);
  if (!options.profile) {
    return pipeline_costs(load_shape(*options.model), depth.cuts(), layout, resolve_batch(options, depth), cluster,
                          bytes);
  }
  apply_stragglers(times, cluster, layout);
  return CostModel(std::move(times), pipeline_links(cluster, layout.pp(), degrees, bytes), bytes);
}

NetworkModel resolve_cluster_network(const Options& options, CommStreams streams) {
  return pipeline_network(load_cluster(*options.cluster).cluster, options.pp, resolve_degrees(options), streams);
}

std::string cluster_text(const Options& options) {
  std::string text = options.profile ? fmt::format("times of each chunk as measured in {}", one_line(*options.profile))
                                     : fmt::format("times of each chunk by the layers of {}", one_line(*options.model));
  if (!options.cluster) return text;
  const Degrees degrees = resolve_degrees(options);
  text += fmt::format("{} on {}, {} devices per rank (tp {} x dp {}, ep {}), {} in all",
                      options.profile ? ", links" : "", one_line(*options.cluster), degrees.gpus(), degrees.tp,
                      degrees.dp, degrees.ep, options.pp * degrees.gpus());
  return text;
}

double tokens_per_second(const Options& options, const Layout& layout, SimTime step) {
  // Each of the tp x dp devices of a stage sees 1 / tp of a microbatch.
  const double tokens = static_cast<double>(layout.microbatches()) * options.tokens;
  return tokens / (to_us(step) * 1e-6) / layout.pp() / resolve_degrees(options).tp;
}

std::optional<double> share_of_peak(const Options& options, double tokens_per_s) {
  if (!options.model) return std::nullopt;
  double flops = 0;
  for (const Work& work : sublayer_work(load_shape(*options.model), options.sequence.value_or(options.tokens)))
    flops += work.forward + work.backward_input + work.backward_weight;
  const double peak = load_cluster(*options.cluster).cluster.gpu.bf16_tflops_dense * 1e12;
  return flops * tokens_per_s / peak;
}

std::string rate_text(const Options& options, const Layout& layout, SimTime step) {
  const double rate = tokens_per_second(options, layout, step);
  std::string text = fmt::format("{:.0f} tokens per second and device", rate);
  if (const std::optional<double> share = share_of_peak(options, rate))
    text += fmt::format(", {} of the peak in operations that the model needs", percent(*share));
  return text;
}

std::string shown_cluster(const Options& options, bool json) {
  const Cluster cluster = load_cluster(*options.cluster).cluster;
  return json ? to_json(cluster) : to_yaml(cluster);
}

}  // namespace plumb::cli

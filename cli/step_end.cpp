// SPDX-License-Identifier: Apache-2.0
#include "step_end.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cluster.hpp"
#include "costs.hpp"
#include "plumb/sizing/cluster_file.hpp"
#include "resolve.hpp"
#include "step_memory.hpp"

namespace plumb::cli {

std::optional<StepEnd> resolve_step_end(const Options& options, const DepthMap& depth) {
  if (!knows_memory(options)) return std::nullopt;
  const Layout layout = resolve_layout(options);
  const Batch batch = resolve_batch(options, depth);
  const std::vector<HeldParameters> held =
      held_parameters(load_shape(*options.model), depth.cuts(), layout, batch.degrees);
  const std::vector<StepEnd> ends =
      step_ends(held, layout, batch, resolve_sharding(options), load_cluster(*options.cluster).cluster);
  return *std::max_element(ends.begin(), ends.end(),
                           [](const StepEnd& a, const StepEnd& b) { return a.total() < b.total(); });
}

SimTime with_end(SimTime step, const std::optional<StepEnd>& end) {
  return end ? step + from_us(end->total() * 1e6, "the end of the step") : step;
}

std::string step_end_text(const StepEnd& end, SimTime step) {
  std::string text;
  if (end.reduce_seconds > 0) text += fmt::format("gradients over replicas {:.3f} ms, ", end.reduce_seconds * 1e3);
  if (end.gather_seconds > 0) text += fmt::format("weights back {:.3f} ms, ", end.gather_seconds * 1e3);
  return fmt::format("step {} ms: the pipeline, then {}optimizer {:.3f} ms", milliseconds(with_end(step, end)), text,
                     end.optimizer_seconds * 1e3);
}

std::string step_end_json(const StepEnd& end, SimTime step) {
  return fmt::format(R"("step_end_us":{{"reduce":{},"gather":{},"optimizer":{},"total":{}}},"step_with_end_us":{})",
                     end.reduce_seconds * 1e6, end.gather_seconds * 1e6, end.optimizer_seconds * 1e6, end.total() * 1e6,
                     to_us(with_end(step, end)));
}

}  // namespace plumb::cli

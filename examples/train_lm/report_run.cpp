// SPDX-License-Identifier: Apache-2.0
#include "train_lm/report_run.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace plumb::lm {

namespace {

std::string grouped(std::int64_t value) {
  std::string digits = fmt::to_string(value);
  for (auto place = static_cast<std::ptrdiff_t>(digits.size()) - 3; place > 0; place -= 3) {
    digits.insert(static_cast<std::size_t>(place), ",");
  }
  return digits;
}

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::string loss_line(const std::vector<double>& losses) {
  // Two windows that share no step.
  const std::size_t window = std::min<std::size_t>(10, losses.size() / 2);
  if (window == 0) {
    return losses.empty() ? "" : fmt::format("loss: {:.4f}\n", losses.front());
  }
  const double first = mean(std::span(losses).first(window));
  const double last = mean(std::span(losses).last(window));
  return fmt::format("loss: {:.4f} over the first {}, {:.4f} over the last {} ({:.2f} of it)\n", first,
                     window == 1 ? "step" : fmt::format("{} steps", window), last, window, last / first);
}

bool equal_counts(const PolicyPlan& plan, const std::optional<std::int64_t>& wire) {
  return plan.formula_bytes == plan.simulated_bytes && wire.value_or(plan.formula_bytes) == plan.formula_bytes;
}

}  // namespace

std::string result_table(const TrainPlan& plan, const TrainResult& result) {
  std::string text = loss_line(result.losses);
  if (result.reference) {
    text += fmt::format(
        "plain torch: first loss within {:.1e} (relative), all losses within {:.1e}, gradients within {:.1e}\n",
        result.reference->first_loss_difference, result.reference->max_loss_difference,
        result.reference->max_gradient_difference);
  }
  if (result.split_backward) {
    text += fmt::format("split backward: W takes {:.0f} % of I + W (CPU time); at most {} bytes wait for W on a rank\n",
                        100 * result.split_backward->weight_share, grouped(result.split_backward->peak_deferred_bytes));
  }
  text += fmt::format("{:<16}{:>16}{:>16}{:>16}\n", "bytes per step", "formula", "simulation", "wire");
  for (std::size_t i = 0; i < plan.policies.size(); ++i) {
    const PolicyPlan& policy = plan.policies[i];
    const auto& wire = result.wire_bytes[i];
    text += fmt::format("{:<16}{:>16}{:>16}{:>16}{}\n", to_string(policy.policy), grouped(policy.formula_bytes),
                        grouped(policy.simulated_bytes), wire ? grouped(*wire) : "not run",
                        equal_counts(policy, wire) ? "" : "  DIFFER");
  }
  return text;
}

std::string result_json(const TrainPlan& plan, const TrainResult& result) {
  using Json = nlohmann::ordered_json;
  Json root;
  root["steps"] = result.losses.size();
  root["loss"] = result.losses;
  Json& bytes = root["bytes_per_step"] = Json::object();
  for (std::size_t i = 0; i < plan.policies.size(); ++i) {
    const PolicyPlan& policy = plan.policies[i];
    Json& entry = bytes[std::string(to_string(policy.policy))];
    entry["formula"] = policy.formula_bytes;
    entry["simulated"] = policy.simulated_bytes;
    entry["wire"] = result.wire_bytes[i] ? Json(*result.wire_bytes[i]) : Json(nullptr);
  }
  root["reference"] = nullptr;
  if (result.reference) {
    root["reference"] = {{"first_loss_relative_difference", result.reference->first_loss_difference},
                         {"max_loss_difference", result.reference->max_loss_difference},
                         {"max_gradient_difference", result.reference->max_gradient_difference}};
  }
  root["split_backward"] = nullptr;
  if (result.split_backward) {
    root["split_backward"] = {{"weight_share_of_cpu_time", result.split_backward->weight_share},
                              {"peak_deferred_bytes", result.split_backward->peak_deferred_bytes}};
  }
  return root.dump();
}

CheckLimits check_limits(Storage dtype) {
  switch (dtype) {
    case Storage::fp64:
      return {1e-12, 1e-9, 1e-11};
    // Plain torch rounds a mixture once, the pipeline also what two phases hand over: single values differ by an ulp.
    case Storage::bf16:
      return {2e-4, 5e-2, 5e-2};
    case Storage::fp16:
      return {2e-5, 1e-2, 1e-2};
    case Storage::fp32:
      break;
  }
  return {1e-6, 1e-4, 1e-4};
}

std::string verdict(const TrainPlan& plan, const TrainResult& result) {
  for (std::size_t i = 0; i < plan.policies.size(); ++i) {
    const PolicyPlan& policy = plan.policies[i];
    if (!equal_counts(policy, result.wire_bytes[i])) {
      return fmt::format("protocol: bytes per step under {} differ: formula {}, simulation {}, wire {}",
                         to_string(policy.policy), policy.formula_bytes, policy.simulated_bytes,
                         result.wire_bytes[i].value_or(-1));
    }
  }
  if (!result.wire_steady) {
    return "protocol: steps under one policy sent different numbers of bytes";
  }
  if (result.reference) {
    const CheckLimits limits = check_limits(plan.model.dtype);
    const ReferenceComparison& found = *result.reference;
    // Written so that a NaN fails.
    if (!(found.first_loss_difference <= limits.first_loss && found.max_loss_difference <= limits.loss &&
          found.max_gradient_difference <= limits.gradient)) {
      return fmt::format(
          "numeric: plain torch differs: first loss {:.1e} (limit {:.0e}), losses {:.1e} ({:.0e}), gradients {:.1e} "
          "({:.0e})",
          found.first_loss_difference, limits.first_loss, found.max_loss_difference, limits.loss,
          found.max_gradient_difference, limits.gradient);
    }
  }
  return "";
}

}  // namespace plumb::lm

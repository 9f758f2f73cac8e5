// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include <nlohmann/json.hpp>

#include "support/catch.hpp"
#include "train_lm/report_run.hpp"

using namespace plumb;
using namespace plumb::lm;

namespace {

TrainPlan two_ranks() {
  TrainOptions options;
  options.text = "given";
  options.shared.pp = 2;
  return make_train_plan(options, "");
}

TrainResult as_planned(const TrainPlan& plan) {
  TrainResult result;
  result.losses = {3.0, 2.0};
  for (const PolicyPlan& policy : plan.policies) {
    result.wire_bytes.emplace_back(policy.formula_bytes);
  }
  return result;
}

}  // namespace

TEST_CASE("one byte more or less on the wire makes the answer no", "[examples]") {
  const TrainPlan plan = two_ranks();
  TrainResult result = as_planned(plan);
  CHECK(verdict(plan, result).empty());
  result.wire_bytes[1] = *result.wire_bytes[1] + 1;
  CHECK_THAT(verdict(plan, result), Catch::Matchers::StartsWith("protocol: "));
  CHECK_THAT(result_table(plan, result), Catch::Matchers::Contains("DIFFER"));
  result.wire_bytes[1].reset();
  CHECK(verdict(plan, result).empty());
  CHECK_THAT(result_table(plan, result), Catch::Matchers::Contains("not run"));
  result.wire_steady = false;
  CHECK_THAT(verdict(plan, result), Catch::Matchers::StartsWith("protocol: "));
}

TEST_CASE("a simulation that lost a message makes the answer no", "[examples]") {
  TrainPlan plan = two_ranks();
  const TrainResult result = as_planned(plan);
  plan.policies.back().simulated_bytes -= 4;
  CHECK_THAT(verdict(plan, result), Catch::Matchers::StartsWith("protocol: "));
}

TEST_CASE("a reference that is far away, or no number, makes the answer no", "[examples]") {
  const TrainPlan plan = two_ranks();
  TrainResult result = as_planned(plan);
  result.reference = ReferenceComparison{1e-8, 1e-6, 1e-6};
  CHECK(verdict(plan, result).empty());
  for (const double bad : {1e-2, std::numeric_limits<double>::quiet_NaN()}) {
    for (double ReferenceComparison::*const field :
         {&ReferenceComparison::first_loss_difference, &ReferenceComparison::max_loss_difference,
          &ReferenceComparison::max_gradient_difference}) {
      TrainResult worse = result;
      (*worse.reference).*field = bad;
      CHECK_THAT(verdict(plan, worse), Catch::Matchers::StartsWith("numeric: "));
    }
  }
}

TEST_CASE("the JSON object has the documented keys", "[examples]") {
  const TrainPlan plan = two_ranks();
  TrainResult result = as_planned(plan);
  result.wire_bytes[0].reset();
  CHECK(nlohmann::json::parse(result_json(plan, result)).at("split_backward").is_null());
  result.split_backward = SplitBackward{0.375, 4096};
  CHECK_THAT(result_table(plan, result),
             Catch::Matchers::Contains("W takes 38 %") && Catch::Matchers::Contains("4,096"));
  const auto json = nlohmann::json::parse(result_json(plan, result));
  CHECK(json.at("steps") == 2);
  CHECK(json.at("loss") == std::vector{3.0, 2.0});
  CHECK(json.at("reference").is_null());
  CHECK(json.at("split_backward").at("weight_share_of_cpu_time") == 0.375);
  CHECK(json.at("split_backward").at("peak_deferred_bytes") == 4096);
  CHECK(json.at("bytes_per_step").size() == 4);
  CHECK(json.at("bytes_per_step").at("naive").at("wire").is_null());
  CHECK(json.at("bytes_per_step").at("cached").at("wire") == json.at("bytes_per_step").at("cached").at("formula"));
}

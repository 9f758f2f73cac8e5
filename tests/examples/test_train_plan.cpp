// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "plumb/schedule/error.hpp"
#include "plumb/schedule/named.hpp"
#include "support/catch.hpp"
#include "support/refusals.hpp"
#include "train_lm/train_plan.hpp"

using namespace plumb;
using namespace plumb::lm;

namespace {

TrainOptions given_text() {
  TrainOptions options;
  options.text = "given";
  return options;
}

std::string refusal(const std::function<void(TrainOptions&)>& change, std::optional<int> started_ranks = std::nullopt) {
  TrainOptions options = given_text();
  change(options);
  return plumb::test::refusal_of([&] { make_train_plan(options, "", started_ranks); });
}

}  // namespace

TEST_CASE("a decoder layer is two sublayers and blocks are an eighth of the layers", "[examples]") {
  TrainOptions options = given_text();
  options.shared.hidden = 8;
  options.tokens = 8;
  options.sequence = 8;
  options.heads = 1;
  options.shared.layers = 93;
  const TrainPlan plan = make_train_plan(options, "");
  CHECK(plan.model.num_sublayers == 186);
  CHECK(plan.model.block_sublayers == 24);  // 12 decoder layers
  CHECK(plan.chosen().depth.num_blocks() == 8);
}

TEST_CASE("residual designs that are only counted are not trained", "[examples]") {
  for (const char* name : {"mhc:4", "deepnet", "denseformer"}) {
    const std::string no = refusal([&](TrainOptions& options) { options.shared.residual = name; });
    CHECK(no.find("not run: legal here are standard, attnres-block and attnres-full") != std::string::npos);
  }
}

TEST_CASE("the chosen policy runs first, each other one step, and the chosen one the rest", "[examples]") {
  TrainOptions options = given_text();
  options.shared.pp = 2;
  options.shared.cache = "relay";
  const TrainPlan plan = make_train_plan(options, "");
  REQUIRE(plan.policies.size() == 4);
  CHECK(plan.policies.back().policy == Policy::relay);
  CHECK(plan.policy_of_step(0) == 3);
  CHECK(plan.policy_of_step(1) == 0);
  CHECK(plan.policy_of_step(3) == 2);
  CHECK(plan.policy_of_step(4) == 3);
  CHECK(plan.policy_of_step(49) == 3);
  for (const PolicyPlan& policy : plan.policies) {
    CHECK(policy.formula_bytes == policy.simulated_bytes);
    CHECK(policy.formula_bytes > 0);
  }
}

TEST_CASE("every schedule is planned, on its own placement unless told otherwise", "[examples]") {
  for (const ScheduleKind kind : all_schedule_kinds()) {
    TrainOptions options = given_text();
    options.shared.pp = 2;
    const bool one_stage = kind == ScheduleKind::one_f_one_b || kind == ScheduleKind::gpipe;
    options.shared.vp = one_stage ? 1 : 2;
    options.shared.schedule = std::string(to_string(kind));
    const TrainPlan plan = make_train_plan(options, "");
    INFO(to_string(kind));
    CHECK(plan.chosen().schedule_name.find(to_string(kind)) == 0);
    CHECK(plan.chosen().layout.placement() == placement_of(kind));
    for (const PolicyPlan& policy : plan.policies) {
      CHECK(policy.formula_bytes == policy.simulated_bytes);
    }
  }
  TrainOptions options = given_text();
  options.shared.pp = 2;
  options.shared.vp = 2;
  options.shared.schedule = "looped-bfs";
  options.shared.placement = "vee";
  CHECK(make_train_plan(options, "").chosen().layout.placement() == Placement::vee);
}

TEST_CASE("flags that cannot work are refused with what is legal", "[examples]") {
  using Catch::Matchers::Contains;
  CHECK(refusal([](TrainOptions&) {}).empty());
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.pp = 0; }), Contains("1"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.pp = -3; }), Contains("1"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.pp = 1000; }), Contains("256"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.vp = 0; }), Contains("1"));
  CHECK_FALSE(refusal([](TrainOptions& o) { o.shared.microbatches = 100'000'000; }).empty());
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.layers = 0; }), Contains("--layers"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.block_layers = 9; }), Contains("--block-layers"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.cuts = "5,3"; }), Contains("--cuts"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.residual = "sum"; }), Contains("attnres-block"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.dtype = "bf8"; }), Contains("bf16, fp16, fp32 and fp64"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.heads = 3; }), Contains("heads"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.tokens = 100; }), Contains("nearest: 64"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.sequence = 0; }), Contains("--seq"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.steps = 0; }), Contains("--steps"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.learning_rate = -1; }), Contains("--lr"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.recompute = "some"; }), Contains("none, full"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.device = "cuda"; }), Contains("cpu"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.threads = 0; }), Contains("--threads"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.schedule = "zigzag"; }), Contains("zb-v"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.pp = 2, o.shared.schedule = "zb-v"; }), Contains("V"));
  CHECK_THAT(refusal([](TrainOptions& o) {
               o.shared.pp = 2, o.shared.vp = 2, o.shared.schedule = "zb-v", o.shared.placement = "loop";
             }),
             Contains("vee"));
  CHECK_THAT(refusal([](TrainOptions& o) {
               o.shared.pp = 2, o.shared.vp = 2, o.shared.schedule = "dualpipe-v", o.shared.microbatches = 3;
             }),
             Contains("4"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.pp = 2, o.shared.vp = 2, o.shared.schedule = "gpipe"; }),
             Contains("1"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.schedule = "gpipe", o.shared.group = 2; }), Contains("--group"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.schedule = "gpipe", o.shared.group_rule = "torch"; }),
             Contains("--group-rule"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.vp = 2, o.shared.group_rule = "deepspeed"; }),
             Contains("megatron"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.vp = 2, o.shared.group_rule = "torch", o.shared.group = 2; }),
             Contains("--group"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.pp = 4; }, 3), Contains("3 MPI ranks"));
  CHECK_THAT(refusal([](TrainOptions& o) { o.shared.hidden = 16384, o.shared.layers = 2048; }), Contains("GiB"));
}

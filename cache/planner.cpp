// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/planner.hpp"

#include "planner_run.hpp"

namespace plumb {
namespace {

class Recorder {
 public:
  explicit Recorder(Plan& plan) : plan_(plan) {}

  void compute_starts(RankId rank, std::int32_t index, std::int64_t start, std::int64_t end) {
    plan_.starts.push_back({.is_message = false, .rank = rank, .index = index, .start = start, .end = end});
  }
  void message_starts(const Message& message, std::int64_t start, std::int64_t end, std::int64_t arrival) {
    plan_.starts.push_back({.is_message = true,
                            .rank = {},
                            .index = static_cast<std::int32_t>(plan_.messages.size()),
                            .start = start,
                            .end = end,
                            .arrival = arrival});
    plan_.messages.push_back(message);
  }

 private:
  Plan& plan_;
};

}  // namespace

Plan plan_order(const Schedule& schedule, const Routing& routing, const PlanCosts& costs) {
  Plan plan;
  Recorder recorder(plan);
  plan.makespan = PlannerRun<Recorder>(schedule, routing, costs, recorder).run();
  return plan;
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// message_event.hpp (private): a message step as an observer sees it.
#pragma once

#include "plumb/runtime/observer.hpp"
#include "rank_plan.hpp"

namespace plumb {

inline MessageEvent message_event(const RankPlan& plan, std::int32_t comm) {
  const CommStep& step = plan.steps().comm[static_cast<std::size_t>(comm)];
  return {step.message, plan.program->messages[step.message.index()], step.peer, step.lane,
          step.kind == CommKind::send};
}

}  // namespace plumb

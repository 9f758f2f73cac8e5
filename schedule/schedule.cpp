// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/schedule.hpp"

namespace plumb {

std::size_t Schedule::num_actions() const {
  std::size_t num = 0;
  for (const std::vector<Action>& actions : ranks)
    num += actions.size();
  return num;
}

}  // namespace plumb

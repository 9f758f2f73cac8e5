// SPDX-License-Identifier: Apache-2.0
//
// for_each_compute.hpp (private): the computations of an action, one or an overlapped pair.
#pragma once

#include "plumb/schedule/action.hpp"

namespace plumb {

template <class Visit>
void for_each_compute(const Action& action, Visit&& visit) {
  visit(action.first);
  if (action.second) visit(*action.second);
}

}  // namespace plumb

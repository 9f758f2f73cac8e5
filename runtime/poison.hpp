// SPDX-License-Identifier: Apache-2.0
//
// poison.hpp (private): what Poison means in this build.
#pragma once

#include "plumb/runtime/executor.hpp"

namespace plumb {

inline bool poisons(Poison wish) {
#ifdef NDEBUG
  return wish == Poison::always;
#else
  return wish != Poison::never;
#endif
}

}  // namespace plumb

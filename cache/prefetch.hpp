// SPDX-License-Identifier: Apache-2.0
//
// prefetch.hpp (private): asks for memory before it is needed. A rank's lists name messages in ascending order but far
// apart, so that each is a cache miss unless it was asked for some steps earlier. Changes no result.
#pragma once

#include <cstddef>
#include <vector>

#include "plumb/cache/program.hpp"

namespace plumb {

inline constexpr std::size_t prefetch_distance = 12;  // steps

template <class T>
void prefetch(const std::vector<T>& list, std::size_t index) {
  __builtin_prefetch(list.data() + index);
}

// The message of the step that comes prefetch_distance later. REQUIRES: the message numbers are in range.
inline void prefetch_message(const Program& program, const RankProgram& steps, std::size_t comm) {
  if (comm + prefetch_distance >= steps.comm.size()) return;
  prefetch(program.messages, steps.comm[comm + prefetch_distance].message.index());
}

}  // namespace plumb

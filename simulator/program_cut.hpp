// SPDX-License-Identifier: Apache-2.0
//
// program_cut.hpp (private): a program without some periods of its steady part.
//
// Where every rank's lists repeat themselves with later messages, a number of periods can be left out: what remains is
// a shorter program that goes the same way, and what was left out is told by the period before (unfold.hpp). Only what
// a simulation looks at must repeat: kinds, chunks, waits, transfers and numbers of segments, neither slots nor
// microbatches. It is verified entry by entry, because a program may come from anywhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "plumb/cache/program.hpp"

namespace plumb {

// Which entries of a list remain. Entry i + period is entry i one period later wherever both lie between `begin` and
// `at + left_out`, and from `waits_begin` on their waits are, too; left_out is a multiple of the period.
struct ListCut {
  std::int32_t size = 0;  // that remain
  std::int32_t begin = 0;
  std::int32_t waits_begin = 0;
  std::int32_t at = 0;  // the first that is left out
  std::int32_t left_out = 0;
  std::int32_t period = 0;

  std::int32_t original(std::int32_t i) const { return i < at ? i : i + left_out; }
  std::int32_t original_size() const { return size + left_out; }
};

struct ProgramCut {
  std::vector<ListCut> compute;  // [rank]
  std::vector<ListCut> comm;
  ListCut messages;
  std::int32_t periods = 0;  // left out

  // What a step of the shorter program waits for, in the shorter program's numbers; -1 if that was left out.
  std::int32_t awaited(RankId rank, bool behind, Wait wait) const {
    const ListCut& list = (wait.on == Wait::On::compute ? compute : comm)[rank.index()];
    const auto step = static_cast<std::int32_t>(wait.step);
    if (behind) return std::max(-1, step - list.left_out);
    return step < list.at ? step : -1;
  }
  MessageId message(MessageId original, bool behind) const {
    return MessageId(original.value - (behind ? messages.left_out : 0));
  }
};

ProgramCut whole(const Program& program);

// Leaves out as many periods as a simulation does not need to come back to where it was, but for `kept`. None if that
// would not save a quarter of the steps.
std::optional<ProgramCut> find_cut(const Program& program, int kept = 0);

}  // namespace plumb

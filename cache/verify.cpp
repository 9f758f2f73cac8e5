// SPDX-License-Identifier: Apache-2.0
#include "verify.hpp"

#include <fmt/format.h>

#include "parallel.hpp"
#include "verify_names.hpp"

namespace plumb {
namespace {

// Waits must look back in the common order, so that the order is a way to run the rank at all. Returns true if they do.
// REQUIRES: the order merges the rank's two lists, so that what stands before a place is a number of steps of each.
bool verify_waits_look_back(const Program& program, RankId rank, FaultList& faults) {
  const RankProgram& steps = program.ranks[rank.index()];
  bool good = true;
  std::int32_t position = 0;
  std::int32_t computes = 0;  // before this position
  std::int32_t comms = 0;
  const auto check = [&](StepRef step, Range waits) {
    for (const Wait& wait : steps.waits_of(waits)) {
      if (wait.step < (wait.on == Wait::On::compute ? computes : comms)) continue;
      good = false;
      const StepRef other(wait);
      faults.add(rank, position, step_token(program, rank, step),
                 fmt::format("waits for {}, which does not stand before it", step_token(program, rank, other)));
    }
  };
  for (const StepRef& step : steps.order) {
    if (faults.full()) break;
    const auto index = static_cast<std::size_t>(step.index);
    check(step, step.comm ? steps.comm[index].waits : steps.compute[index].waits);
    for (const Release& release :
         steps.releases_of(step.comm ? steps.comm[index].releases : steps.compute[index].releases)) {
      check(step, release.waits);
    }
    ++(step.comm ? comms : computes);
    ++position;
  }
  return good;
}

}  // namespace

std::vector<ProgramFault> verify_program(const Program& program, std::size_t max_faults) {
  FaultList faults(max_faults);
  verify_structure(program, faults);
  if (!faults.empty()) return faults.take();
  const ChunkSources sources = chunk_sources(program);
  verify_routing(program, sources, faults);
  if (!faults.empty()) return faults.take();  // all that follows rests on the trees
  verify_messages(program, faults);
  verify_computes(program, faults);
  const std::size_t num_ranks = program.ranks.size();
  std::vector<FaultList> of_rank(num_ranks, faults.as_empty());
  for_each_in_parallel(num_ranks, threads_worth_it(program.messages.size(), num_ranks, 0),
                       [&](std::size_t rank, std::size_t) {
                         if (verify_waits_look_back(program, RankId(rank), of_rank[rank])) {
                           verify_slots(program, sources, RankId(rank), of_rank[rank]);
                         }
                       });
  for (FaultList& found : of_rank)
    faults.join(std::move(found));
  return faults.take();
}

}  // namespace plumb

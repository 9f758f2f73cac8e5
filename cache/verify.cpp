// SPDX-License-Identifier: Apache-2.0
#include "verify.hpp"

#include <fmt/format.h>

#include "verify_names.hpp"

namespace plumb {
namespace {

// Waits must look back in the common order, so that the order is a way to run the rank at all. Returns true if they do.
bool verify_waits_look_back(const Program& program, RankId rank, FaultList& faults) {
  const RankProgram& steps = program.ranks[rank.index()];
  std::vector<std::int32_t> compute_position(steps.compute.size(), 0);
  std::vector<std::int32_t> comm_position(steps.comm.size(), 0);
  for (std::size_t position = 0; position < steps.order.size(); ++position) {
    const StepRef& step = steps.order[position];
    (step.comm ? comm_position : compute_position)[static_cast<std::size_t>(step.index)] =
        static_cast<std::int32_t>(position);
  }
  bool good = true;
  const auto check = [&](std::int32_t position, StepRef step, Range waits) {
    for (const Wait& wait : steps.waits_of(waits)) {
      const auto index = static_cast<std::size_t>(wait.step);
      const StepRef other{wait.on == Wait::On::comm, wait.step};
      if ((other.comm ? comm_position : compute_position)[index] < position) continue;
      good = false;
      faults.add(rank, position, step_token(program, rank, step),
                 fmt::format("waits for {}, which does not stand before it", step_token(program, rank, other)));
    }
  };
  for (std::size_t position = 0; position < steps.order.size() && !faults.full(); ++position) {
    const StepRef& step = steps.order[position];
    const auto index = static_cast<std::size_t>(step.index);
    const auto here = static_cast<std::int32_t>(position);
    check(here, step, step.comm ? steps.comm[index].waits : steps.compute[index].waits);
    for (const Release& release :
         steps.releases_of(step.comm ? steps.comm[index].releases : steps.compute[index].releases)) {
      check(here, step, release.waits);
    }
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
  for (RankId rank; rank.index() < program.ranks.size() && !faults.full(); rank = rank.next()) {
    if (verify_waits_look_back(program, rank, faults)) verify_slots(program, sources, rank, faults);
  }
  return faults.take();
}

}  // namespace plumb

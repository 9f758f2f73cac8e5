// SPDX-License-Identifier: Apache-2.0
#include "faults.hpp"

#include "support/catch.hpp"

namespace plumb::test {

std::string faults_of(const Program& program) {
  std::string text;
  for (const ProgramFault& fault : verify_program(program)) {
    text += "rank " + std::to_string(fault.rank.value) + " position " + std::to_string(fault.position) + " " +
            fault.token + ": " + fault.why + "\n";
  }
  return text;
}

void must_be_found(std::string_view part, int times, const std::function<bool(Program&, Dice&)>& damage) {
  Dice dice(41);
  int applied = 0;
  for (int trial = 0; trial < 3000 && applied < times; ++trial) {
    Program program = random_program(dice, {.pp = 4, .vp = 3, .sublayers = 20, .microbatches = 4});
    if (!damage(program, dice)) continue;
    ++applied;
    INFO(describe(program));
    const std::string faults = faults_of(program);
    INFO(faults);
    REQUIRE_FALSE(faults.empty());
    REQUIRE(contains(faults, part));
  }
  REQUIRE(applied == times);
}

}  // namespace plumb::test

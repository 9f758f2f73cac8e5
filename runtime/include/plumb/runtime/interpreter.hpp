// SPDX-License-Identifier: Apache-2.0
//
// interpreter.hpp: runs all ranks of a Program in one thread, without a transport.
//
// The same step machine as the executor's, driven in turns; messages are copies. It is the yardstick: executor runs
// over any transport must give the same bits. It is also the shortest way to debug a Stage. It is NOT a simulator (no
// times). Ownership: stages and observer belong to the caller. Threads: none of its own; one call at a time.
#pragma once

#include <memory>
#include <vector>

#include "plumb/runtime/executor.hpp"

namespace plumb {

struct InterpreterOptions {
  Poison poison = Poison::in_debug_builds;
  StepObserver* observer = nullptr;
};

class Interpreter {
 public:
  // `stages`: one for every chunk.
  explicit Interpreter(StageTable stages, InterpreterOptions options = {});
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws InputError as Executor::prepare does.
  ProgramHandle prepare(std::shared_ptr<const Program> program, const SlotShape& shape);
  void discard(ProgramHandle handle);

  // One step; results by rank (StepResult::wall is 0: the ranks take turns). Throws what a Stage throws, or a RunError:
  // a program that can go no further is a StallError at once.
  std::vector<StepResult> run(ProgramHandle handle);

  // The slots of one rank of the program that ran last.
  const BlockStore& store(RankId rank) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One step of one program.
std::vector<StepResult> interpret_single_thread(std::shared_ptr<const Program> program, StageTable stages,
                                                const SlotShape& shape, InterpreterOptions options = {});

}  // namespace plumb

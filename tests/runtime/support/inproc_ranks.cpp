// SPDX-License-Identifier: Apache-2.0
#include "inproc_ranks.hpp"

#include <thread>

namespace plumb::test {

std::vector<std::exception_ptr> on_ranks(int num_ranks, const std::function<void(const RankPlace&)>& play) {
  InprocHub hub(num_ranks);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(num_ranks));
  std::vector<std::jthread> threads;
  for (int r = 0; r < num_ranks; ++r) {
    auto transport = hub.make_transport(PeerId{r});
    auto control = hub.make_control(PeerId{r});
    threads.emplace_back([&play, &errors, r, transport = std::move(transport), control = std::move(control)] {
      try {
        play({RankId(r), *transport, *control});
      } catch (...) {
        errors[static_cast<std::size_t>(r)] = std::current_exception();
      }
    });
  }
  threads.clear();
  return errors;
}

void on_all_ranks(int num_ranks, const std::function<void(const RankPlace&)>& play) {
  for (const std::exception_ptr& error : on_ranks(num_ranks, play)) {
    if (error) std::rethrow_exception(error);
  }
}

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  }
}

std::vector<StepResult> run_on_threads(std::shared_ptr<const Program> program, const StageTable& stages,
                                       const SlotShape& shape, const ExecutorOptions& options) {
  std::vector<StepResult> results(program->ranks.size());
  on_all_ranks(program->layout.pp(), [&](const RankPlace& place) {
    Executor executor(place.rank, stages, &place.transport, &place.control, options);
    results[place.rank.index()] = executor.run(executor.prepare(program, shape));
  });
  return results;
}

}  // namespace plumb::test

// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <mutex>
#include <thread>

#include "cache/support/programs.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/runtime/interpreter.hpp"
#include "plumb/runtime/run_error.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/generators.hpp"
#include "runtime/support/fake_clock.hpp"
#include "runtime/support/faulty_transport.hpp"
#include "runtime/support/inproc_ranks.hpp"
#include "runtime/support/integer_host.hpp"
#include "runtime/support/program_faults.hpp"
#include "support/catch.hpp"

namespace plumb::test {
namespace {

using Catch::Matchers::Contains;

template <class Error>
const Error* as(const std::exception_ptr& error, std::string& text) {
  static thread_local std::exception_ptr kept;
  kept = error;
  text = text_of(error);
  if (!error) return nullptr;
  try {
    std::rethrow_exception(error);
  } catch (const Error& found) {
    return &found;
  } catch (...) {
    return nullptr;
  }
}

// A host for one step of a program.
struct Host {
  explicit Host(const Program& program)
      : model(program.depth, 2, 4), host(model, program.depth, program.layout.microbatches(), Storage::fp64) {}
  IntegerModel model;
  IntegerHost host;
};

// Runs one step with a fault on one rank and expects `Error` there and a PeerError naming it everywhere else.
template <class Error>
std::string fails_on(RankId where, const std::vector<std::exception_ptr>& errors) {
  std::string found;
  for (std::size_t r = 0; r < errors.size(); ++r) {
    std::string text;
    INFO("rank " << r);
    if (RankId(r) == where) {
      const auto* error = as<Error>(errors[r], found);
      INFO(found);
      REQUIRE(error != nullptr);
      CHECK(error->rank() == where);
      CHECK_FALSE(error->action().empty());
    } else {
      const auto* error = as<PeerError>(errors[r], text);
      INFO(text);
      REQUIRE(error != nullptr);
      CHECK(error->rank() == RankId(r));
      CHECK(error->peer() == where);
    }
    CHECK(found.find('\n') == std::string::npos);
  }
  return found;
}

std::vector<std::exception_ptr> run_all(const std::shared_ptr<const Program>& program, Host& host,
                                        const ExecutorOptions& options = {}) {
  return on_ranks(program->layout.pp(), [&](const RankPlace& place) {
    Executor executor(place.rank, host.host.stages(), &place.transport, nullptr, options);
    executor.run(executor.prepare(program, host.host.shape()));
  });
}

std::vector<std::exception_ptr> run_with(FaultyTransport::Fault fault, int which, bool verify, Host& host,
                                         const std::shared_ptr<const Program>& program) {
  return on_ranks(program->layout.pp(), [&](const RankPlace& place) {
    FaultyTransport faulty(place.transport, place.rank.value == 0 ? fault : FaultyTransport::Fault::none, which);
    ExecutorOptions options;
    options.verify_messages = verify;
    Executor executor(place.rank, host.host.stages(), &faulty, &place.control, options);
    executor.run(executor.prepare(program, host.host.shape()));
  });
}

Program two_ranks(int microbatches) {
  const Layout layout(2, 1, microbatches);
  return lower(one_f_one_b(layout), DepthMap(8, 2, {3, 8}), Policy::cached);
}

}  // namespace

TEST_CASE("a dropped contribution ends the step and is named", "[runtime]") {
  // Under naive every copy of a block has one reader, so there is no second contribution to drop.
  for (const Policy policy : {Policy::relay, Policy::cached, Policy::direct}) {
    INFO(to_string(policy));
    Program program = small_program(policy);
    const PlantedContribution planted = drop_contribution(program);
    Host host(program);
    const auto errors = run_all(share(std::move(program)), host);
    const std::string text = fails_on<ContributionError>(planted.rank, errors);
    CHECK_THAT(text, Contains("the gradient of block " + std::to_string(planted.block.value) + " for microbatch " +
                              std::to_string(planted.compute.microbatch.value)));
    CHECK_THAT(text, Contains("instead of"));
    CHECK(host.host.num_abandoned() > 0);
  }
}

TEST_CASE("an accumulator that nobody opened is noticed by whoever adds to it or sends it", "[runtime]") {
  for (const Policy policy : block_policies) {
    INFO(to_string(policy));
    Program program = small_program(policy);
    const PlantedContribution planted = drop_contribution(program, true);
    Host host(program);
    const auto errors = run_all(share(std::move(program)), host);
    const std::string text = fails_on<SlotError>(planted.rank, errors);
    CHECK_THAT(text, Contains("should hold the gradient of block " + std::to_string(planted.block.value)));
    CHECK_THAT(text, Contains("but holds nothing"));
  }
}

TEST_CASE("a contribution made twice ends the step and is named", "[runtime]") {
  Program program = small_program(Policy::cached);
  const PlantedContribution planted = double_contribution(program);
  Host host(program);
  const auto errors = run_all(share(std::move(program)), host);
  CHECK_THAT(fails_on<ContributionError>(planted.rank, errors),
             Contains("the gradient of block " + std::to_string(planted.block.value)));
}

TEST_CASE("the one-thread interpreter counts contributions too", "[runtime]") {
  Program program = small_program(Policy::cached);
  const PlantedContribution planted = drop_contribution(program);
  Host host(program);
  try {
    interpret_single_thread(share(std::move(program)), host.host.stages(), host.host.shape());
    FAIL("nothing was thrown");
  } catch (const ContributionError& error) {
    CHECK(error.rank() == planted.rank);
    CHECK(error.block() == planted.block);
    CHECK(error.counted() == error.expected() - 1);
  }
}

TEST_CASE("swapped microbatches are caught by the trailer, and only by it", "[runtime]") {
  const Program right = two_ranks(2);
  Program swapped = right;
  const RankId receiver = swap_first_messages(swapped, RankId{0});
  const auto run = [&](bool verify, Host& host) {
    return on_ranks(2, [&](const RankPlace& place) {
      ExecutorOptions options;
      options.verify_messages = verify;
      Executor executor(place.rank, host.host.stages(), &place.transport, nullptr, options);
      executor.run(executor.prepare(share(place.rank == RankId{0} ? swapped : right), host.host.shape()));
    });
  };
  Host silent(right);
  for (const std::exception_ptr& error : run(false, silent))
    CHECK(text_of(error).empty());
  CHECK_FALSE(silent.host.gradients() == silent.model.reference(2));
  Host checked(right);
  const std::string text = fails_on<MessageMismatch>(receiver, run(true, checked));
  CHECK_THAT(text, Contains("rank 1, 1RECV_F0: rank 0 sent microbatch 1 instead of 0"));
}

TEST_CASE("a message delivered again in place of the next is caught", "[runtime]") {
  const auto program = share(two_ranks(4));
  Host host(*program);
  const auto errors = run_with(FaultyTransport::Fault::earlier_message_again, 1, true, host, program);
  CHECK_THAT(fails_on<MessageMismatch>(RankId{1}, errors), Contains("microbatch 0 instead of 1"));
}

TEST_CASE("a flipped bit is caught by the checksum", "[runtime]") {
  const auto program = share(two_ranks(4));
  Host host(*program);
  const auto errors = run_with(FaultyTransport::Fault::one_bit_flipped, 2, true, host, program);
  CHECK_THAT(fails_on<MessageMismatch>(RankId{1}, errors), Contains("1RECV_F2: rank 0 sent payload checksum"));
}

TEST_CASE("a wrong block count is caught with and without trailers", "[runtime]") {
  const auto program = share(two_ranks(4));
  for (const bool verify : {false, true}) {
    Host host(*program);
    const auto errors = run_with(FaultyTransport::Fault::last_segment_missing, 1, verify, host, program);
    const std::string text = fails_on<MessageMismatch>(RankId{1}, errors);
    CHECK_THAT(text, Contains("rank 1, 1RECV_F") && Contains(": the message from rank 0 is not the expected one"));
    CHECK_THAT(text, Contains("bytes"));
  }
}

TEST_CASE("a program that differs on one rank is refused on every rank before anything is sent", "[runtime]") {
  const auto program = share(small_program(Policy::cached));
  const auto other = share(small_program(Policy::direct));
  Host host(*program);
  const auto errors = on_ranks(4, [&](const RankPlace& place) {
    Executor executor(place.rank, host.host.stages(), &place.transport, &place.control);
    thrown_by<PlanMismatch>([&] { executor.prepare(place.rank == RankId{2} ? other : program, host.host.shape()); });
    must(place.transport.counters().total.messages_sent == 0, "nothing was sent");
    executor.prepare(place.rank == RankId{2} ? other : program, host.host.shape());
  });
  for (std::size_t r = 0; r < errors.size(); ++r) {
    std::string text;
    const auto* error = as<PlanMismatch>(errors[r], text);
    INFO(text);
    REQUIRE(error != nullptr);
    CHECK(error->rank() == RankId(r));
    CHECK(error->odd() == RankId{2});
    CHECK_THAT(text, Contains("direct") && Contains("cached") && Contains("rank 2"));
  }
}

TEST_CASE("tokens and options must agree too, and the executor survives a mismatch", "[runtime]") {
  const auto program = share(small_program(Policy::cached));
  Host host(*program);
  on_all_ranks(4, [&](const RankPlace& place) {
    Executor executor(place.rank, host.host.stages(), &place.transport, &place.control);
    SlotShape shape = host.host.shape();
    if (place.rank.value == 0) shape.tokens += 1;
    const std::string text = thrown_by<PlanMismatch>([&] { executor.prepare(program, shape); });
    must(text.find("tokens is 3 on rank 0 but 2 elsewhere") != std::string::npos, text);
    executor.run(executor.prepare(program, host.host.shape()));
  });
  CHECK(host.host.gradients() == host.model.reference(8));
}

TEST_CASE("an exception of a stage leaves its rank as it came and ends the others", "[runtime]") {
  class Broken final : public Stage {
   public:
    void forward(const StageForward& args) override {
      if (args.microbatch.value == 3) throw std::domain_error("the loss is not a number");
    }
    void backward(const StageBackward&) override {}
  };
  const auto program = share(small_program(Policy::cached));
  Host host(*program);
  Broken broken;
  StageTable stages = host.host.stages();
  stages[1] = &broken;
  const auto errors = on_ranks(4, [&](const RankPlace& place) {
    Executor executor(place.rank, stages, &place.transport, &place.control);
    const ProgramHandle handle = executor.prepare(program, host.host.shape());
    try {
      executor.run(handle);
    } catch (...) {
      thrown_by<std::logic_error>([&] { executor.run(handle); });
      throw;
    }
  });
  for (std::size_t r = 0; r < errors.size(); ++r) {
    std::string text;
    if (r == 1) {
      CHECK(as<std::domain_error>(errors[r], text) != nullptr);
    } else {
      const auto* error = as<PeerError>(errors[r], text);
      REQUIRE(error != nullptr);
      CHECK(error->peer() == RankId{1});
      CHECK_THAT(text, Contains("the loss is not a number"));
    }
  }
}

TEST_CASE("a rank that never comes is a stall on the waiting rank, by the injected clock", "[runtime]") {
  const auto program = share(two_ranks(2));
  Host host(*program);
  const auto clock = std::make_shared<FakeClock>();
  std::mutex mutex;
  std::condition_variable changed;
  bool stalled = false;
  const auto errors = on_ranks(2, [&](const RankPlace& place) {
    ExecutorOptions options;
    options.clock = clock;
    options.wait_limit = std::chrono::hours(1);
    Executor executor(place.rank, host.host.stages(), &place.transport, nullptr, options);
    const ProgramHandle handle = executor.prepare(program, host.host.shape());
    if (place.rank == RankId{1}) {
      try {
        executor.run(handle);
      } catch (...) {
        const std::lock_guard lock(mutex);
        stalled = true;
        changed.notify_one();
        throw;
      }
    }
    // Rank 0 never runs its step; the hour passes as often as it must until rank 1 notices.
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, std::chrono::milliseconds(20), [&] { return stalled; })) {
      clock->advance(std::chrono::minutes(31));
    }
    lock.unlock();
    executor.run(handle);
  });
  std::string text;
  const auto* error = as<StallError>(errors[1], text);
  INFO(text);
  REQUIRE(error != nullptr);
  CHECK(error->action() == "1F0");
  CHECK(error->peer() == RankId{0});
  CHECK_THAT(error->waited_for(), Contains("1RECV_F0 from rank 0 (partial and blocks 0 1, urgent)"));
  CHECK(as<PeerError>(errors[0], text) != nullptr);
}

// Many short computations with waits between them: the compute worker of rank 1 communicates itself when rank 0 stops.
TEST_CASE("a rank that communicates without its thread notices stalls and failures too", "[runtime]") {
  const Layout layout(2, 1, 80);
  const auto program = share(lower(breadth_first(layout), DepthMap(4, 2, {2, 4}), Policy::cached));
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool stalled = false;
  };
  class EmptyStage : public Stage {
   public:
    void forward(const StageForward&) override {}
    void backward(const StageBackward&) override {}
  };
  class FirstStage final : public EmptyStage {
   public:
    FirstStage(Gate& gate, FakeClock& clock, bool throws) : gate_(gate), clock_(clock), throws_(throws) {}
    void forward(const StageForward& args) override {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (args.microbatch.value != 60) return;
      if (throws_) throw std::domain_error("the loss is not a number");
      std::unique_lock lock(gate_.mutex);
      while (!gate_.changed.wait_for(lock, std::chrono::milliseconds(20), [&] { return gate_.stalled; })) {
        clock_.advance(std::chrono::minutes(31));
      }
    }

   private:
    Gate& gate_;
    FakeClock& clock_;
    bool throws_;
  };
  for (const bool throws : {false, true}) {
    const auto clock = std::make_shared<FakeClock>();
    Gate gate;
    FirstStage first(gate, *clock, throws);
    EmptyStage second;
    const auto errors = on_ranks(2, [&](const RankPlace& place) {
      ExecutorOptions options;
      options.clock = clock;
      options.wait_limit = std::chrono::hours(1);
      Executor executor(place.rank, {&first, &second}, &place.transport, nullptr, options);
      const ProgramHandle handle = executor.prepare(program, {1, 4, Storage::fp32});
      try {
        executor.run(handle);
      } catch (...) {
        const std::lock_guard lock(gate.mutex);
        gate.stalled = true;
        gate.changed.notify_all();
        throw;
      }
    });
    std::string text;
    if (throws) {
      CHECK(as<std::domain_error>(errors[0], text) != nullptr);
      CHECK(as<PeerError>(errors[1], text) != nullptr);
    } else {
      const auto* error = as<StallError>(errors[1], text);
      INFO(text);
      REQUIRE(error != nullptr);
      CHECK(error->action() == "1F60");
      CHECK_THAT(error->waited_for(), Contains("1RECV_F60 from rank 0"));
      CHECK(as<PeerError>(errors[0], text) != nullptr);
    }
  }
}

TEST_CASE("a program that can go no further is named by the one-thread interpreter", "[runtime]") {
  Program program = two_ranks(2);
  // The receive of the first backward message waits for the computation that needs it.
  RankProgram& rank = program.ranks[0];
  const auto receive = std::find_if(rank.comm.begin(), rank.comm.end(),
                                    [](const CommStep& step) { return step.kind == CommKind::receive; });
  REQUIRE(receive != rank.comm.end());
  receive->waits.begin = static_cast<std::uint32_t>(rank.waits.size());
  rank.waits.push_back({Wait::On::compute, static_cast<std::int32_t>(rank.compute.size()) - 1});
  receive->waits.end = static_cast<std::uint32_t>(rank.waits.size());
  Host host(program);
  CHECK_THROWS_AS(interpret_single_thread(share(program), host.host.stages(), host.host.shape()), StallError);
}

TEST_CASE("a damaged program is refused with one line", "[runtime]") {
  const Program right = two_ranks(2);
  Host host(right);
  const auto refused = [&](Program program, const char* what) {
    CHECK_THROWS_WITH(interpret_single_thread(share(std::move(program)), host.host.stages(), host.host.shape()),
                      Contains(what));
  };
  Program slot = right;
  slot.ranks[1].operands[0].slot = 999;
  refused(slot, "rank 1: the slot of operand 0");
  Program wait = right;
  wait.ranks[0].waits[0].step = 99999;
  refused(wait, "rank 0: wait 0");
  Program segments = right;
  for (CommStep& step : segments.ranks[0].comm) {
    if (step.kind == CommKind::send) --step.segments.end;
  }
  refused(segments, "segments for a message of");
}

TEST_CASE("a rank without its stages, or with another's transport, is refused", "[runtime]") {
  const auto program = share(two_ranks(2));
  Host host(*program);
  StageTable stages = host.host.stages();
  stages[1] = nullptr;
  CHECK_THROWS_WITH(interpret_single_thread(program, stages, host.host.shape()),
                    Contains("rank 1 has no stage for its chunk 1"));
  on_all_ranks(2, [&](const RankPlace& place) {
    thrown_by<InputError>([&] { Executor(RankId{5}, host.host.stages(), &place.transport, nullptr); });
  });
  Executor lonely(RankId{0}, host.host.stages(), nullptr, nullptr);
  CHECK_THROWS_WITH(lonely.prepare(program, host.host.shape()), Contains("a program for 2 ranks on 1 ranks"));
}

}  // namespace plumb::test

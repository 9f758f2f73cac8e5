// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

#include <mpi.h>

#include "conformance.hpp"
#include "plumb/comm/mpi.hpp"
#include "support/catch.hpp"
#include "traffic.hpp"

namespace plumb {
namespace {

using testing::ConformanceCase;

/// MPI can start once per process, the cases want a world each.
struct MpiProcess {
  MpiProcess() {
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  }
  ~MpiProcess() { MPI_Finalize(); }
};

void bring_up_mpi() { static const MpiProcess process; }

std::int32_t num_ranks() {
  bring_up_mpi();
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

void run_case(void (*body)(testing::RankEnds), const MpiOptions& options = {}) {
  MpiWorld world(options);
  try {
    body({world.transport(), world.control()});
  } catch (const std::exception& error) {
    world.transport().fail(error.what());
    throw;
  }
}

void run_all(std::span<const ConformanceCase> cases, const MpiOptions& options = {}) {
  for (const ConformanceCase& c : cases) {
    if (num_ranks() < c.min_ranks) continue;
    INFO(c.sentence << ", " << num_ranks() << " ranks");
    CHECK_NOTHROW(run_case(c.body, options));
  }
}

TEST_CASE("channels between processes keep the contract", "[comm]") { run_all(testing::channel_cases()); }
TEST_CASE("calls between processes keep the contract", "[comm]") { run_all(testing::use_cases()); }
// Wrong lengths are among these cases.
TEST_CASE("failures between processes end every wait", "[comm]") {
  run_all(testing::failure_cases(), {.probe_from_bytes = 1024});
}
TEST_CASE("processes exchange texts", "[comm]") { run_all(testing::control_cases()); }

TEST_CASE("segments beyond the piece size travel in pieces", "[comm]") {
  run_all(testing::channel_cases(), {.max_piece_bytes = 3000});
}

TEST_CASE("segments keep their order whether their length is looked at first or not", "[comm]") {
  run_all(testing::channel_cases(), {.probe_from_bytes = 1024});
  run_all(testing::channel_cases(), {.probe_from_bytes = 1});
}

TEST_CASE("a world takes the ranks of a given communicator only", "[comm]") {
  MPI_Comm half = MPI_COMM_NULL;
  int rank = 0;
  const int size = num_ranks();
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  {
    MpiWorld world({.communicator_handle = MPI_Comm_c2f(half)});
    CHECK(world.transport().size() == (size + 1 - rank % 2) / 2);
    CHECK(world.transport().rank().value == (size - 1 - rank) / 2);
    const auto all = world.control().exchange(std::to_string(rank), testing::patience);
    for (std::size_t i = 1; i < all.size(); ++i)
      CHECK(std::stoi(all[i]) == std::stoi(all[i - 1]) - 2);
  }
  MPI_Comm_free(&half);
}

TEST_CASE("two worlds of one process do not mix", "[comm]") {
  bring_up_mpi();
  MpiWorld a, b;
  if (num_ranks() == 1) return;
  testing::Message to_a({8}), to_b({8}), from_a({8}), from_b({8});
  testing::Poster at_a(a.transport()), at_b(b.transport());
  const PeerId me = a.transport().rank(), next = testing::next_of(a.transport()),
               previous = testing::previous_of(a.transport());
  to_a.fill(me, next, Lane::urgent, 1);
  to_b.fill(me, next, Lane::urgent, 2);
  at_a.send(next, Lane::urgent, to_a);
  at_b.send(next, Lane::urgent, to_b);
  at_b.receive(previous, Lane::urgent, from_b);
  at_b.finish_all();
  at_a.receive(previous, Lane::urgent, from_a);
  at_a.finish_all();
  CHECK_NOTHROW(from_a.expect(previous, me, Lane::urgent, 1));
  CHECK_NOTHROW(from_b.expect(previous, me, Lane::urgent, 2));
}

TEST_CASE("options out of range are refused before anything is exchanged", "[comm]") {
  bring_up_mpi();
  CHECK_THROWS_AS(MpiWorld({.max_piece_bytes = 0}), std::invalid_argument);
  CHECK_THROWS_AS(MpiWorld({.max_piece_bytes = std::size_t{1} << 31}), std::invalid_argument);
  CHECK_THROWS_AS(MpiWorld({.communicator_handle = MPI_Comm_c2f(MPI_COMM_NULL)}), std::invalid_argument);
}

// The last rank is done at once; what the others still expect of it can never come, and they must learn so.
TEST_CASE("a process that leaves fails those who still expect something of it", "[comm]") {
  const std::int32_t size = num_ranks();
  if (size == 1) return;
  const PeerId leaving{size - 1};
  const auto text_of = [](const std::function<void()>& run) {
    try {
      run();
    } catch (const TransportError& error) {
      CHECK(error.fault().kind == TransportErrorKind::peer);
      return error.fault().text;
    }
    return std::string("no error");
  };
  for (const char* expected_by : {"receive", "exchange"}) {
    INFO(expected_by);
    MpiWorld world;
    Transport& t = world.transport();
    if (t.rank() == leaving) continue;
    testing::Message never({8});
    const std::string text = text_of([&] {
      if (expected_by == std::string("exchange")) world.control().exchange("digest", testing::patience);
      t.post_receive(leaving, Lane::bulk, never.segments());
      for (int i = 0; i < 2000; ++i)
        t.wait(std::chrono::milliseconds(10));
    });
    CHECK_THAT(text, Catch::Contains("has left"));
    t.fail("the last rank has left");
  }
}

}  // namespace
}  // namespace plumb

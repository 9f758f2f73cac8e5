// SPDX-License-Identifier: Apache-2.0
// The simulated block finds each kind of mistake when it is planted, and runs correct bodies as a GPU would.
#include <numeric>

#include "cuda/row_block.hpp"
#include "kernels/cuda/simt.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;
using simt::Fault;
using simt::FaultKind;

namespace {

// Runs `body` in blocks of 64 threads and returns the fault it ends with.
template <class Body>
Fault fault_of(const Body& body, int shared_bytes = 1024) {
  simt::Machine machine;
  try {
    machine(body, {2, 64, shared_bytes});
  } catch (const Fault& fault) {
    return fault;
  }
  throw std::logic_error("no fault was found");
}

// Neighbours exchange a number through shared memory.
struct Neighbours {
  bool barrier_between;
  bool barrier_at_end;
  std::vector<int>* out;
  void operator()(simt::Thread& x) const {
    auto own = x.shared<int>(0, x.num_threads());
    for (int round = 0; round < 2; ++round) {
      own.set(x.thread(), x.thread() + 100 * round);
      if (barrier_between) {
        x.barrier();
      }
      (*out)[static_cast<std::size_t>(x.thread())] = own.get((x.thread() + 1) % x.num_threads());
      if (barrier_at_end) {
        x.barrier();
      }
    }
  }
};

struct BlockSum {
  std::vector<float>* out;
  void operator()(simt::Thread& x) const {
    float value[3] = {1, static_cast<float>(x.thread()), 0.1f * static_cast<float>(x.thread() + x.block())};
    cuda_detail::block_sum(x, value, 0);
    for (std::size_t k = 0; k < 3; ++k) {
      (*out)[static_cast<std::size_t>(x.block() * x.num_threads() + x.thread()) * 3 + k] = value[k];
    }
  }
};

}  // namespace

TEST_CASE("a correct exchange through shared memory runs on the simulated block", "[simt]") {
  std::vector<int> out(64);
  simt::Machine machine;
  machine(Neighbours{true, true, &out}, {3, 64, 64 * 4});
  CHECK(out[0] == 101);
  CHECK(out[63] == 100);
}

TEST_CASE("a missing barrier before a read is found as a race", "[simt]") {
  std::vector<int> out(64);
  const simt::Order order = GENERATE(simt::Order::ascending, simt::Order::descending, simt::Order::shuffled);
  simt::Machine machine(order);
  try {
    machine(Neighbours{false, true, &out}, {1, 64, 64 * 4});
    FAIL("not found");
  } catch (const Fault& fault) {
    CHECK((fault.kind() == FaultKind::race || fault.kind() == FaultKind::unset_read));
  }
}

TEST_CASE("a missing barrier before the next write is found as a race", "[simt]") {
  std::vector<int> out(64);
  simt::Machine machine;
  try {
    machine(Neighbours{true, false, &out}, {1, 64, 64 * 4});
    FAIL("not found");
  } catch (const Fault& fault) {
    CHECK(fault.kind() == FaultKind::race);
    CHECK(std::string(fault.what()).find("test_simt.cpp:") != std::string::npos);
  }
}

TEST_CASE("a shuffle does not order shared memory", "[simt]") {
  const Fault fault = fault_of([](simt::Thread& x) {
    auto cell = x.shared<int>(0, 1);
    if (x.thread() == 0) {
      cell.set(0, 7);
    }
    float values[1] = {0};
    x.shuffle_xor(values, 1);
    if (x.thread() == 1) {
      cell.get(0);
    }
  });
  CHECK(fault.kind() == FaultKind::race);
}

TEST_CASE("shared memory out of bounds of its window or of the launch is found", "[simt]") {
  CHECK(fault_of([](simt::Thread& x) { x.shared<int>(0, 64).set(x.thread() + 1, 0); }).kind() ==
        FaultKind::out_of_bounds);
  CHECK(fault_of([](simt::Thread& x) { x.shared<int>(0, 64).set(x.thread() - 1, 0); }).kind() ==
        FaultKind::out_of_bounds);
  CHECK(fault_of([](simt::Thread& x) { x.shared<int>(0, 64).set(x.thread(), 0); }, 63 * 4).kind() ==
        FaultKind::out_of_bounds);
}

TEST_CASE("shared memory that was never written is not read", "[simt]") {
  CHECK(fault_of([](simt::Thread& x) { x.shared<int>(0, 64).get(x.thread()); }).kind() == FaultKind::unset_read);
}

TEST_CASE("divergent barriers are found", "[simt]") {
  CHECK(fault_of([](simt::Thread& x) {
          if (x.thread() < 32) {
            x.barrier();
          }
        }).kind() == FaultKind::divergent_barrier);
  const auto two_barriers = [](simt::Thread& x) {  // outside CHECK, which puts all of it on one line
    if (x.thread() == 5) {
      x.barrier();
    } else {
      x.barrier();
    }
  };
  CHECK(fault_of(two_barriers).kind() == FaultKind::divergent_barrier);
}

TEST_CASE("shuffles that not all lanes of a warp reach are found", "[simt]") {
  CHECK(fault_of([](simt::Thread& x) {
          float values[1] = {0};
          if (x.thread() != 40) {
            x.shuffle_xor(values, 1);
          }
        }).kind() == FaultKind::divergent_warp);
  CHECK(fault_of([](simt::Thread& x) {
          float values[1] = {0};
          x.shuffle_xor(values, x.thread() == 3 ? 1 : 2);
        }).kind() == FaultKind::divergent_warp);
}

TEST_CASE("misaligned vector accesses and impossible launches are found", "[simt]") {
  alignas(16) float row[64] = {};
  CHECK(fault_of([&row](simt::Thread& x) { x.load16(row + x.thread() % 4); }).kind() == FaultKind::misaligned);
  simt::Machine machine;
  CHECK_THROWS_AS(machine([](simt::Thread&) {}, {1, 48, 0}), Fault);
  CHECK_THROWS_AS(machine([](simt::Thread&) {}, {1, 2048, 0}), Fault);
  CHECK_THROWS_AS(machine([](simt::Thread&) {}, {1, 64, 1 << 20}), Fault);
}

TEST_CASE("a machine runs on after a fault", "[simt]") {
  simt::Machine machine;
  CHECK_THROWS_AS(machine([](simt::Thread& x) { x.shared<int>(0, 1).get(0); }, {1, 64, 4}), Fault);
  int count = 0;
  machine([&count](simt::Thread&) { ++count; }, {3, 64, 0});
  CHECK(count == 3 * 64);
}

TEST_CASE("a machine may run larger blocks after smaller ones", "[simt]") {
  simt::Machine machine;
  for (const int threads : {32, 256, 64, 1024}) {
    std::vector<float> out(static_cast<std::size_t>(threads) * 3);
    machine(BlockSum{&out}, {1, threads, cuda_detail::block_sum_bytes(threads, 3)});
    CHECK(out[0] == static_cast<float>(threads));
  }
}

TEST_CASE("the sum over a block has the same bits in every thread and in every order of threads", "[simt]") {
  std::vector<std::vector<float>> all;
  for (const simt::Order order : {simt::Order::ascending, simt::Order::descending, simt::Order::shuffled}) {
    std::vector<float> out(2 * 96 * 3);
    simt::Machine machine(order);
    machine(BlockSum{&out}, {2, 96, cuda_detail::block_sum_bytes(96, 3)});
    CHECK(out[0] == 96.0f);
    CHECK(out[1] == 96.0f * 95 / 2);
    for (std::size_t k = 0; k < 96 * 3; ++k) {
      CHECK(out[k] == out[k % 3]);
    }
    all.push_back(out);
  }
  CHECK(all[0] == all[1]);
  CHECK(all[0] == all[2]);
}

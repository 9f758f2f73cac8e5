// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies, warp barriers and products of matrices on the simulated block: mistakes are planted and found.
#include <algorithm>
#include <numeric>

#include "cuda/mma_fragments.hpp"
#include "kernels/cuda/simt.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;
using simt::Fault;
using simt::FaultKind;
using simt::Thread;

namespace {

constexpr int kThreads = 64;
constexpr int kBytes = 16 * kThreads;

struct Source {
  alignas(16) std::uint32_t words[4 * kThreads + 4];
  Source() { std::iota(std::begin(words), std::end(words), 0u); }
};

template <class Body>
std::string fault_of(const Body& body, FaultKind expected, int bytes = 2 * kBytes) {
  simt::Machine machine(simt::Order::ascending);
  try {
    machine(body, {1, kThreads, bytes});
  } catch (const Fault& fault) {
    CHECK(fault.kind() == expected);
    return fault.what();
  }
  FAIL("no fault was found");
  return {};
}

auto window(Thread& x) { return x.shared<std::uint32_t>(0, 8 * kThreads); }

}  // namespace

TEST_CASE("an asynchronous copy is there for its thread after waiting and for others after a barrier", "[simt]") {
  const Source source;
  std::vector<std::uint32_t> own(kThreads);
  std::vector<std::uint32_t> other(kThreads);
  simt::Machine machine;
  machine(
      [&](Thread& x) {
        auto to = window(x);
        const int k = x.thread();
        x.copy16(to, 4 * k, source.words + 4 * k);
        x.copy8(to, 4 * kThreads + 4 * k, source.words + 4 * k + 2, k % 2 == 0);
        x.commit_copies();
        x.wait_copies<0>();
        own[static_cast<std::size_t>(k)] = to.get4(4 * k).w[3];
        x.barrier();
        other[static_cast<std::size_t>(k)] = to.get2(4 * kThreads + 4 * ((k + 33) % kThreads)).w[1];
      },
      {1, kThreads, 2 * kBytes});
  for (std::size_t k = 0; k < kThreads; ++k) {
    CHECK(own[k] == 4 * k + 3);
    const std::size_t from = (k + 33) % kThreads;
    CHECK(other[k] == (from % 2 == 0 ? 4 * from + 3 : 0));  // zeros where nothing is there
  }
}

TEST_CASE("reading a copy that was not waited for is found", "[simt]") {
  const Source source;
  const std::string text = fault_of(
      [&](Thread& x) {
        auto to = window(x);
        x.copy16(to, 4 * x.thread(), source.words + 4 * x.thread());
        x.commit_copies();
        to.get(4 * x.thread());
      },
      FaultKind::unfinished_copy);
  CHECK(text.find("test_simt_copies.cpp:") != std::string::npos);
  // A group that was never closed is not waited for either, nor does a barrier wait.
  fault_of(
      [&](Thread& x) {
        auto to = window(x);
        x.copy16(to, 4 * x.thread(), source.words + 4 * x.thread());
        x.wait_copies<0>();
        x.barrier();
        to.get(4 * x.thread());
      },
      FaultKind::unfinished_copy);
}

TEST_CASE("waiting for all groups but the last leaves the last in flight", "[simt]") {
  const Source source;
  const auto body = [&](int read) {
    return [&source, read](Thread& x) {
      auto to = window(x);
      for (int group = 0; group < 2; ++group) {
        x.copy16(to, 4 * (x.thread() + kThreads * group), source.words + 4 * x.thread());
        x.commit_copies();
      }
      x.wait_copies<1>();
      to.get(4 * (x.thread() + kThreads * read));
      x.wait_copies<0>();
    };
  };
  simt::Machine machine;
  CHECK_NOTHROW(machine(body(0), {1, kThreads, 2 * kBytes}));
  fault_of(body(1), FaultKind::unfinished_copy);
}

TEST_CASE("a missing barrier between a copy and its use by another thread is found", "[simt]") {
  const Source source;
  fault_of(
      [&](Thread& x) {
        auto to = window(x);
        x.copy16(to, 4 * x.thread(), source.words + 4 * x.thread());
        x.commit_copies();
        x.wait_copies<0>();
        float values[1] = {0};
        x.shuffle_xor(values, 1);  // all have waited; that orders nothing
        to.get(4 * (x.thread() ^ 1));
      },
      FaultKind::race);
}

TEST_CASE("a copy over what is read, written or copied without a barrier between is found", "[simt]") {
  const Source source;
  const auto body = [&](bool barrier, bool copy_first) {
    return [&source, barrier, copy_first](Thread& x) {
      auto to = window(x);
      if (copy_first) {
        x.copy16(to, 4 * x.thread(), source.words);
        x.commit_copies();
      } else {
        to.set(4 * x.thread(), 1u);
      }
      if (barrier) {
        x.barrier();
      }
      x.copy16(to, 4 * ((x.thread() + 1) % kThreads), source.words);
      x.commit_copies();
      x.wait_copies<0>();
    };
  };
  simt::Machine machine;
  CHECK_NOTHROW(machine(body(true, false), {1, kThreads, 2 * kBytes}));
  fault_of(body(false, false), FaultKind::race);
  fault_of(body(true, true), FaultKind::race);  // a barrier does not end a copy
  fault_of(
      [&](Thread& x) {
        auto to = window(x);
        to.set(4 * x.thread(), 1u);
        x.barrier();
        to.get(4 * (x.thread() ^ 1));
        x.copy16(to, 4 * x.thread(), source.words);
        x.commit_copies();
        x.wait_copies<0>();
      },
      FaultKind::race);
}

TEST_CASE("copies that nobody waits for, out of bounds or misaligned are found", "[simt]") {
  const Source source;
  const auto copy = [&](int to_word, int from_word) {
    return [&source, to_word, from_word](Thread& x) {
      auto to = window(x);
      x.copy16(to, 4 * x.thread() + to_word, source.words + 4 * x.thread() + from_word);
      x.commit_copies();
      x.wait_copies<0>();
    };
  };
  simt::Machine machine;
  CHECK_NOTHROW(machine(copy(0, 0), {1, kThreads, kBytes}));
  fault_of(copy(4, 0), FaultKind::out_of_bounds, kBytes);
  fault_of(copy(1, 0), FaultKind::misaligned);
  fault_of(copy(0, 1), FaultKind::misaligned);
  fault_of([&](Thread& x) { x.copy16(window(x), 4 * x.thread(), source.words); }, FaultKind::unfinished_copy);
}

TEST_CASE("a copy brings what lies at its source when it is waited for", "[simt]") {
  Source source;
  std::uint32_t got = 0;
  simt::Machine machine;
  machine(
      [&](Thread& x) {
        auto to = window(x);
        if (x.thread() == 0) {
          x.copy16(to, 0, source.words);
          x.commit_copies();
          source.words[0] = 77;
          x.wait_copies<0>();
          got = to.get(0);
        }
      },
      {1, kThreads, kBytes});
  CHECK(got == 77);
}

TEST_CASE("a barrier of the warp orders memory within the warp and not beyond", "[simt]") {
  const auto body = [](int mask) {
    return [mask](Thread& x) {
      auto to = window(x);
      for (std::uint32_t round = 0; round < 2; ++round) {
        to.set(x.thread(), round);
        x.warp_barrier();
        to.get(x.thread() ^ mask);
        x.warp_barrier();
      }
    };
  };
  const simt::Order order = GENERATE(simt::Order::ascending, simt::Order::descending, simt::Order::shuffled);
  simt::Machine machine(order);
  CHECK_NOTHROW(machine(body(31), {2, kThreads, kBytes}));
  CHECK_THROWS_AS(machine(body(32), {2, kThreads, kBytes}), Fault);
  fault_of(
      [](Thread& x) {
        if (x.thread() != 7) {
          x.warp_barrier();
        }
      },
      FaultKind::divergent_warp);
}

TEST_CASE("matrices loaded from shared memory multiply as matrices", "[simt]") {
  // A (16 x 16, row by row) and B (its 8 columns as rows of 16) in small integers: exact in bf16 and in any order.
  const auto a_of = [](int r, int c) { return (5 * r + 3 * c) % 7 - 3; };
  const auto b_of = [](int r, int c) { return (2 * r + 5 * c) % 5 - 2; };
  const bool transposed = GENERATE(false, true);
  std::vector<float> d(16 * 8, -1.0f);
  simt::Machine machine;
  machine(
      [&](Thread& x) {
        namespace fragment = cuda_detail::fragment;
        const int lane = x.thread();
        auto memory = x.shared<std::uint32_t>(0, 16 * 8 + 64);
        const auto pair = [](int low, int high) {
          return static_cast<std::uint32_t>(to_bf16(static_cast<float>(low)).bits) |
                 static_cast<std::uint32_t>(to_bf16(static_cast<float>(high)).bits) << 16;
        };
        for (int k = lane; k < 16 * 8; k += 32) {
          memory.set(k, pair(a_of(k / 8, k % 8 * 2), a_of(k / 8, k % 8 * 2 + 1)));
        }
        for (int k = lane; k < 64; k += 32) {  // B transposed: row = column of B; or row by row
          memory.set(128 + k, transposed ? pair(b_of(k / 4, k % 4 * 2), b_of(k / 4, k % 4 * 2 + 1))
                                         : pair(b_of(k % 8 * 2, k / 8), b_of(k % 8 * 2 + 1, k / 8)));
        }
        x.warp_barrier();
        // Matrices of A: rows 0..7 then 8..15 of columns 0..7, then those of columns 8..15: a0..a3 of the multiply.
        const cuda_detail::Words4 a = x.load_matrices<false>(memory, (lane % 16) * 8 + lane / 16 * 4);
        const int row = lane % 16;
        const cuda_detail::Words4 b = transposed ? x.load_matrices<true>(memory, 128 + row * 4)
                                                 : x.load_matrices<false>(memory, 128 + row % 8 * 8 + row / 8 * 4);
        float sum[4] = {1, 1, 1, 1};
        x.multiply<Bf16>(sum, {a.w[0], a.w[1], a.w[2], a.w[3]}, {b.w[0], b.w[1]});
        for (int i = 0; i < 4; ++i) {
          d[static_cast<std::size_t>(fragment::d_row(lane, i) * 8 + fragment::d_column(lane, i))] = sum[i];
        }
      },
      {1, 32, 4 * (16 * 8 + 64)});
  for (int r = 0; r < 16; ++r) {
    for (int c = 0; c < 8; ++c) {
      int expected = 1;
      for (int k = 0; k < 16; ++k) {
        expected += a_of(r, k) * b_of(k, c);
      }
      CHECK(d[static_cast<std::size_t>(r * 8 + c)] == static_cast<float>(expected));
    }
  }
}

TEST_CASE("sums in simulated tensor cores are cut off, not rounded", "[simt]") {
  float sum = 0;
  simt::Machine machine;
  machine(
      [&](Thread& x) {
        float d[4] = {1, 1, 1, 1};
        const std::uint32_t a = x.thread() % 4 == 0 ? to_bf16(0x1.8p-12f).bits : 0;  // column 0
        const std::uint32_t b = to_bf16(0x1p-12f).bits;
        x.multiply<Bf16>(d, {a, 0, 0, 0}, {b, 0});
        if (x.thread() == 0) {
          sum = d[0];
        }
      },
      {1, 32, 0});
  CHECK(1.0f + 0x1.8p-24f > 1.0f);  // to nearest
  CHECK(sum == 1.0f);
}

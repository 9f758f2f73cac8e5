// SPDX-License-Identifier: Apache-2.0
// Kernels that copy rows ahead, on simulated blocks: the bits of those that read them straight from memory.
#include "kernels/cuda/gpu_case.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

/// `shared_bytes`: what a block may have.
template <class V>
Mixtures<V> mixed(const CpuCase<V>& in, int shared_bytes, simt::Order order = simt::Order::ascending, int turn = 2) {
  GpuRun<V> run(order, false, turn);
  run.gpu().limit_shared_bytes(shared_bytes);
  return Mixtures<V>(run, in.problem, without_scales(in.list()), in.queries);
}

constexpr int kAll = 227 << 10;

template <class V>
void check_same_bits(std::int64_t tokens, std::int64_t width, int n, int queries, int shared_bytes = kAll) {
  INFO(to_string(kFormat<V>) << ", tokens " << tokens << ", width " << width << ", sources " << n << ", queries "
                             << queries);
  const CpuCase<V> in(tokens, width, n, queries, 2.0);
  const Mixtures<V> plain = mixed(in, 0);
  const Mixtures<V> copied = mixed(in, shared_bytes);
  CHECK(plain.launches == 2 * copied.launches);  // else the rows did not fit and nothing is compared
  CHECK(plain.same_bits(copied));
}

}  // namespace

TEST_CASE("on the GPU phase one has the same bits with its rows kept in shared memory", "[gpu]") {
  check_same_bits<Bf16>(5, 24, 3, 2);
  check_same_bits<Bf16>(3, 104, 9, 9);
  check_same_bits<Fp16>(3, 1000, 2, 1);
  check_same_bits<float>(4, 264, 17, 3);
  check_same_bits<float>(2, 2304, 1, 1);  // two slices to a row
  check_same_bits<Bf16>(2, 4104, 2, 2);   // three, the last nearly empty
}

TEST_CASE("on the GPU phase one has the same bits however much of the next token is copied ahead", "[gpu]") {
  // One slot of 3 sources is 12.2 KB here, and a row has two slices: rings of 2, 3 and 4 slots.
  const int slot = cuda_detail::RowRing<Bf16>::slot_bytes(256, 3);
  const int tables = cuda_detail::block_sum_bytes(256, 72) + 3 * 8 * 4;
  for (const int slots : {2, 3, 4}) {
    check_same_bits<Bf16>(2, 2304, 3, 1, tables + slots * slot);
  }
  const CpuCase<Bf16> in(2, 2304, 3, 1, 2.0);
  CHECK(mixed(in, tables + 2 * slot - 1).launches == 2);  // no room: as without
}

TEST_CASE("on the GPU a block may take any number of tokens in turn, and threads run in any order", "[gpu]") {
  const CpuCase<Bf16> in(7, 520, 4, 3, 2.0);
  const Mixtures<Bf16> base = mixed(in, 0);
  for (const int turn : {1, 3, 7, 16}) {
    CHECK(base.same_bits(mixed(in, kAll, simt::Order::ascending, turn)));
  }
  CHECK(base.same_bits(mixed(in, kAll, simt::Order::descending, 3)));
  CHECK(base.same_bits(mixed(in, kAll, simt::Order::shuffled, 3)));
}

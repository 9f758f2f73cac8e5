// SPDX-License-Identifier: Apache-2.0
// Kernels that copy rows ahead, on simulated blocks: the bits of those that read them straight from memory.
#include "kernels/cuda/gpu_case.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;
using cuda_detail::Operators;

namespace {

template <class V>
struct Mixtures {
  std::vector<Rows<V>> o;
  std::vector<Rows<float>> lse;
  std::vector<Rows<float>> scales;
  std::int64_t launches;

  /// `shared_bytes`: what a block may have.
  Mixtures(const CpuCase<V>& in, int shared_bytes, simt::Order order = simt::Order::ascending, int turn = 2) {
    const DepthProblem& problem = in.problem;
    simt::Machine gpu(order);
    gpu.limit_shared_bytes(shared_bytes);
    gpu.take_in_turn(turn);
    GpuWorkspace workspace;
    o.assign(in.queries.size(), not_a_number<V>(problem.tokens * problem.width));
    lse.assign(in.queries.size(), poison<float>(problem.tokens));
    scales.assign(in.sources.size(), poison<float>(problem.tokens));
    std::vector<PhaseOneQuery> all;
    for (std::size_t l = 0; l < o.size(); ++l) {
      all.push_back({in.queries[l].data(), o[l].data(), lse[l].data()});
    }
    std::vector<DepthSource> sources = in.list();
    std::vector<void*> scales_out;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      sources[i].inverse_rms = nullptr;
      scales_out.push_back(scales[i].data());
    }
    Operators<V>::phase_one(gpu, problem, {sources, all, false, scales_out},
                            workspace(problem, sources.size(), all.size()));
    launches = gpu.num_launches();
  }

  bool same_bits(const Mixtures& other) const {
    bool same = true;
    for (std::size_t l = 0; l < o.size(); ++l) {
      same = same && same_rows(o[l], other.o[l]) && same_rows(lse[l], other.lse[l]);
    }
    for (std::size_t i = 0; i < scales.size(); ++i) {
      same = same && same_rows(scales[i], other.scales[i]);
    }
    return same;
  }
};

constexpr int kAll = 227 << 10;

template <class V>
void check_same_bits(std::int64_t tokens, std::int64_t width, int n, int queries, int shared_bytes = kAll) {
  INFO(to_string(kFormat<V>) << ", tokens " << tokens << ", width " << width << ", sources " << n << ", queries "
                             << queries);
  const CpuCase<V> in(tokens, width, n, queries, 2.0);
  const Mixtures<V> plain(in, 0);
  const Mixtures<V> copied(in, shared_bytes);
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
  CHECK(Mixtures<Bf16>(in, tables + 2 * slot - 1).launches == 2);  // no room: as without
}

TEST_CASE("on the GPU a block may take any number of tokens in turn, and threads run in any order", "[gpu]") {
  const CpuCase<Bf16> in(7, 520, 4, 3, 2.0);
  const Mixtures<Bf16> base(in, 0);
  for (const int turn : {1, 3, 7, 16}) {
    CHECK(base.same_bits(Mixtures<Bf16>(in, kAll, simt::Order::ascending, turn)));
  }
  CHECK(base.same_bits(Mixtures<Bf16>(in, kAll, simt::Order::descending, 3)));
  CHECK(base.same_bits(Mixtures<Bf16>(in, kAll, simt::Order::shuffled, 3)));
}

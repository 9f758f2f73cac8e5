// SPDX-License-Identifier: Apache-2.0
// Operands that cannot be right are refused by name before a GPU is touched, and so also without one.
#include "cuda/operand_rules.hpp"
#include "kernels/support/cpu_case.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;
using cuda_detail::check;

namespace {

template <class Call>
std::string refused(const Call& call) {
  try {
    call();
  } catch (const OperandError& error) {
    return error.argument();
  }
  return "nothing";
}

struct Operands {
  CpuCase<Bf16> in{5, 16, 3, 2, 1.0};
  std::vector<DepthSource> sources = in.list();
  Rows<Bf16> h = not_a_number<Bf16>(5 * 16);
  Rows<Bf16> other = h;
  Rows<float> lse = poison<float>(5);
  Rows<float> lse_two = lse;
  Rows<float> sums = poison<float>(16);
  Rows<float> wide = poison<float>(5 * 16);
  std::vector<std::byte> memory = std::vector<std::byte>(1 << 16);
  cuda::Execution execution{aligned(), 1 << 15, nullptr};

  void* aligned() {
    const auto misfit = reinterpret_cast<std::uintptr_t>(memory.data()) % 256;
    return memory.data() + (misfit == 0 ? 0 : 256 - misfit);
  }
};

}  // namespace

TEST_CASE("the workspace of a GPU operator is a pure function of the sizes", "[gpu]") {
  const DepthProblem problem{1000, 64, Storage::bf16, 1e-6};
  const std::size_t eight = cuda::workspace_bytes(problem, 9, 8);
  CHECK(eight >= 1000 * 4 * (9 * (2 * 8 + 2) + 1));
  CHECK(eight <= 1000 * 4 * (9 * (2 * 8 + 2) + 1) + 5 * 256);
  CHECK(cuda::workspace_bytes(problem, 9, 24) == eight);
  CHECK(refused([&] { cuda::workspace_bytes(problem, 0, 1); }) == "num_sources");
  CHECK(refused([&] { cuda::workspace_bytes(problem, 129, 1); }) == "num_sources");
  CHECK(refused([&] { cuda::workspace_bytes(problem, 1, 0); }) == "num_queries");
  CHECK(refused([&] { cuda::workspace_bytes({0, 64, Storage::bf16, 1e-6}, 1, 1); }) == "problem.tokens");
  CHECK(refused([&] { cuda::workspace_bytes({1, 64, Storage::fp64, 1e-6}, 1, 1); }) == "problem.storage");
}

TEST_CASE("a GPU operator refuses problems, lists and workspaces that cannot be right", "[gpu]") {
  Operands of;
  const PhaseOneQuery one{of.in.queries[0].data(), of.h.data(), of.lse.data()};
  const PhaseOneForward good{of.sources, {&one, 1}};
  CHECK_NOTHROW(check(of.in.problem, good, of.execution));
  const auto with = [&](DepthProblem problem) { return refused([&] { check(problem, good, of.execution); }); };
  CHECK(with({0, 16, Storage::bf16, 1e-6}) == "problem.tokens");
  CHECK(with({5, 0, Storage::bf16, 1e-6}) == "problem.width");
  CHECK(with({5, 16, Storage::bf16, 0}) == "problem.eps");
  CHECK(with({5, 16, Storage::fp64, 1e-6}) == "problem.storage");
  CHECK(with({std::int64_t{1} << 30, 16, Storage::bf16, 1e-6}) == "problem.tokens");
  const auto on = [&](cuda::Execution execution) { return refused([&] { check(of.in.problem, good, execution); }); };
  CHECK(on({nullptr, 1 << 15, nullptr}) == "execution.workspace");
  CHECK(on({of.aligned(), 100, nullptr}) == "execution.workspace");
  CHECK(on({static_cast<std::byte*>(of.aligned()) + 16, 1 << 14, nullptr}) == "execution.workspace");
  CHECK(refused([&] { check(of.in.problem, PhaseOneForward{{}, {&one, 1}}, of.execution); }) == "sources");
  CHECK(refused([&] { check(of.in.problem, PhaseOneForward{of.sources, {}}, of.execution); }) == "queries");
  const std::vector<DepthSource> many(129, of.sources[0]);
  CHECK(refused([&] { check(of.in.problem, PhaseOneForward{many, {&one, 1}}, of.execution); }) == "sources");
}

TEST_CASE("a GPU operator refuses null, misaligned and overlapping operands by name", "[gpu]") {
  Operands of;
  const void* query = of.in.queries[0].data();
  const auto aggregate = [&](AggregateForward args) { return refused([&] { check(of.in.problem, args); }); };
  CHECK(aggregate({of.sources, query, of.h.data(), of.lse.data()}) == "nothing");
  CHECK(aggregate({of.sources, nullptr, of.h.data(), of.lse.data()}) == "query");
  CHECK(aggregate({of.sources, query, reinterpret_cast<std::byte*>(of.h.data()) + 1, of.lse.data()}) == "h");
  CHECK(aggregate({of.sources, query, of.in.sources[1].data(), of.lse.data()}) == "h");
  CHECK(aggregate({of.sources, query, of.h.data(), of.h.data()}) == "h");
  CHECK(aggregate({of.sources, query, of.h.data(), of.lse.data(), {of.sums.data(), 0.0}}) == "norm.eps");
  std::vector<DepthSource> hole = of.sources;
  hole[1].value = nullptr;
  CHECK(aggregate({hole, query, of.h.data(), of.lse.data()}) == "sources[1].value");

  const DepthSource later{of.in.partial.data(), nullptr};
  const auto merge = [&](MergeForward args) { return refused([&] { check(of.in.problem, args); }); };
  CHECK(merge({of.other.data(), of.lse.data(), {&later, 1}, query, of.other.data(), of.lse.data()}) == "nothing");
  CHECK(merge({of.other.data(), nullptr, {&later, 1}, query, of.h.data(), of.lse.data()}) == "lse_in");
  CHECK(merge({of.other.data(), of.lse.data(), {}, query, of.h.data(), of.lse_two.data()}) == "later");
  CHECK(merge({of.other.data(), of.lse.data(), {&later, 1}, query, of.in.partial.data(), of.lse_two.data()}) == "h");

  const auto backward = [&](MergeBackward args) { return refused([&] { check(of.in.problem, args, of.execution); }); };
  const MergeBackward good{nullptr,       nullptr,           {&later, 1},    query,         of.in.grads[0].data(),
                           of.lse.data(), of.lse_two.data(), of.wide.data(), of.sums.data()};
  CHECK(backward(good) == "nothing");
  MergeBackward bad = good;
  bad.query_sums = nullptr;
  CHECK(backward(bad) == "query_sums");
  bad = good;
  bad.grad_partial = of.in.grads[0].data();
  CHECK(backward(bad) == "grad_partial");
  bad = good;
  bad.delta = of.aligned();
  CHECK(backward(bad) == "delta");  // inside the workspace

  std::vector<DepthSourceGradient> gradients = {{of.sources[0], of.wide.data(), true},
                                                {of.sources[1], of.wide.data(), true}};
  CHECK(
      refused([&] {
        check(of.in.problem, AggregateBackward{gradients, query, of.in.grads[0].data(), of.sums.data()}, of.execution);
      }) == "sources[0].gradient");
  gradients.pop_back();
  const InterBlockReader reader{query, of.in.grads[0].data(), nullptr, nullptr, of.sums.data(), false};
  CHECK(refused([&] {
          check(of.in.problem, InterBlockBackward{gradients, {&reader, 1}}, of.execution);
        }) == "readers[0].lse");
}

TEST_CASE("every GPU operator names what is null and what overlaps its output", "[gpu]") {
  Operands of;
  const DepthProblem& problem = of.in.problem;
  void* const a = of.in.sources[0].data();
  void* const b = of.in.sources[1].data();
  const auto name = [&](const auto& args) { return refused([&] { check(problem, args); }); };
  const auto name_on = [&](const auto& args) { return refused([&] { check(problem, args, of.execution); }); };
  using cuda_detail::InverseRms;
  CHECK(name(InverseRms{a, of.lse.data()}) == "nothing");
  CHECK(name(InverseRms{nullptr, of.lse.data()}) == "block");
  CHECK(name(InverseRms{a, a}) == "inverse_rms");
  using cpu::AddOutput;
  CHECK(name(AddOutput{a, b, a}) == "nothing");  // the sum may replace the partial
  CHECK(name(AddOutput{a, nullptr, of.h.data()}) == "output");
  CHECK(name(AddOutput{a, b, of.h.data(), of.h.data()}) == "out");
  const std::vector<const void*> list = {a, b};
  const std::vector<void*> fresh = {of.h.data()};
  const std::vector<void*> taken = {a};
  using cpu::WeightedSum;
  CHECK(name(WeightedSum{list, of.wide.data(), fresh}) == "nothing");
  CHECK(name(WeightedSum{list, nullptr, fresh}) == "weights");
  CHECK(name(WeightedSum{{}, of.wide.data(), fresh}) == "sources");
  CHECK(name(WeightedSum{list, of.wide.data(), {}}) == "out");
  CHECK(name(WeightedSum{list, of.wide.data(), taken}) == "out[0]");
  Rows<float> dq = of.sums;
  Rows<float> dgain = of.sums;
  const void* query = of.in.queries[0].data();
  CHECK(name(QueryReduction{of.sums.data(), query, of.in.queries[1].data(), dq.data(), dgain.data()}) == "nothing");
  CHECK(name(QueryReduction{of.sums.data(), query, nullptr, dq.data(), dgain.data()}) == "gain");
  CHECK(name(QueryReduction{of.sums.data(), query, of.in.queries[1].data(), dq.data(), dq.data()}) == "grad_query");

  // Lists of different lengths, and flags that contradict them.
  const PhaseOneQuery one{query, of.h.data(), of.lse.data()};
  const std::vector<void*> two_of_three = {of.lse_two.data(), nullptr};
  CHECK(name_on(PhaseOneForward{of.sources, {&one, 1}, false, two_of_three}) == "inverse_rms_out");
  const std::vector<PhaseOneQuery> same_o = {one, {of.in.queries[1].data(), of.h.data(), of.lse_two.data()}};
  CHECK(name_on(PhaseOneForward{of.sources, same_o}) == "queries[0].o");
  const std::vector<PhaseOneQuery> onto_source = {{query, b, of.lse.data()}};
  CHECK(name_on(PhaseOneForward{of.sources, onto_source}) == "queries[0].o");
  Rows<float> more = of.wide;
  const std::vector<DepthSourceGradient> gradients = {{of.sources[0], of.wide.data(), true},
                                                      {of.sources[1], more.data(), true}};
  const InterBlockReader sole{query, of.in.grads[0].data(), nullptr, nullptr, nullptr, true};
  CHECK(name_on(InterBlockBackward{gradients, {&sole, 1}}) == "readers[0].sole_source");
}

TEST_CASE("every GPU operator that needs a workspace refuses one that is too small or missing", "[gpu]") {
  Operands of;
  const void* query = of.in.queries[0].data();
  const DepthSource later{of.in.partial.data(), nullptr};
  const PhaseOneQuery one{query, of.h.data(), of.lse.data()};
  const DepthSourceGradient own{of.sources[0], of.wide.data(), true};
  const InterBlockReader reader{query, of.in.grads[0].data(), of.lse.data(), of.lse_two.data(), of.sums.data(), false};
  const auto refuses = [&](const auto& args, std::size_t sources, std::size_t queries) {
    const std::size_t needed =
        cuda::workspace_bytes(of.in.problem, static_cast<int>(sources), static_cast<int>(queries));
    const auto on = [&](cuda::Execution execution) { return refused([&] { check(of.in.problem, args, execution); }); };
    CHECK(on({of.aligned(), needed, nullptr}) == "nothing");
    CHECK(on({of.aligned(), needed - 1, nullptr}) == "execution.workspace");
    CHECK(on({}) == "execution.workspace");
  };
  refuses(PhaseOneForward{of.sources, {&one, 1}}, of.sources.size(), 1);
  refuses(MergeBackward{nullptr,
                        nullptr,
                        {&later, 1},
                        query,
                        of.in.grads[0].data(),
                        of.lse.data(),
                        of.lse_two.data(),
                        of.wide.data(),
                        of.sums.data()},
          1, 1);
  refuses(AggregateBackward{{&own, 1}, query, of.in.grads[0].data(), of.sums.data()}, 1, 1);
  refuses(InterBlockBackward{{&own, 1}, {&reader, 1}}, 1, 1);
}

// SPDX-License-Identifier: Apache-2.0
// Bad operands are refused by name, before anything is written.
#include <functional>

#include "kernels/support/cpu_case.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

/// Legal operands of every operator; tests spoil one at a time.
struct Legal {
  DepthProblem problem{4, 24, Storage::bf16, 1e-6};
  std::vector<Rows<Bf16>> values = std::vector<Rows<Bf16>>(6, Rows<Bf16>(96));
  std::vector<Rows<float>> gradients = std::vector<Rows<float>>(6, poison<float>(96));
  std::vector<Rows<float>> statistics = std::vector<Rows<float>>(6, poison<float>(4));
  Rows<float> query = zeros<float>(24);
  std::vector<DepthSource> sources;
  std::vector<PhaseOneQuery> queries;
  std::vector<DepthSourceGradient> accumulators;
  std::vector<InterBlockReader> readers;
  PhaseOneForward phase_one;
  AggregateForward aggregate;
  MergeForward merge;
  MergeBackward merge_backward;
  AggregateBackward aggregate_backward;
  InterBlockBackward inter_block;
  cpu::AddOutput add;
  TestExecution own;
  cpu::Execution execution;

  Legal() {
    for (std::size_t i = 0; i < 2; ++i) {
      sources.push_back({values[i].data(), nullptr});
      accumulators.push_back({sources[i], gradients[i].data(), true});
    }
    queries.push_back({query.data(), values[2].data(), statistics[0].data()});
    readers.push_back(
        {query.data(), gradients[2].data(), statistics[0].data(), statistics[1].data(), gradients[3].data(), false});
    phase_one = {sources, queries};
    aggregate = {sources, query.data(), values[2].data(), statistics[0].data()};
    merge = {values[3].data(), statistics[0].data(), std::span(sources).first(1),
             query.data(),     values[2].data(),     statistics[1].data()};
    merge_backward = {gradients[2].data(),  statistics[0].data(), std::span(sources).first(1),
                      query.data(),         gradients[3].data(),  statistics[1].data(),
                      statistics[2].data(), gradients[4].data(),  gradients[5].data()};
    aggregate_backward = {accumulators, query.data(), gradients[2].data(), gradients[3].data()};
    inter_block = {accumulators, readers};
    add = {values[0].data(), values[1].data(), values[2].data(), statistics[0].data()};
    execution = own(problem, 4, 4);
  }

  std::vector<std::function<void()>> operators() {
    return {[this] { cpu::phase_one_forward(problem, phase_one, execution); },
            [this] { cpu::aggregate_forward(problem, aggregate, execution); },
            [this] { cpu::merge_forward(problem, merge, execution); },
            [this] { cpu::add_output(problem, add, execution); },
            [this] { cpu::inverse_rms(problem, values[0].data(), statistics[0].data(), execution); },
            [this] { cpu::merge_backward(problem, merge_backward, execution); },
            [this] { cpu::aggregate_backward(problem, aggregate_backward, execution); },
            [this] { cpu::inter_block_backward(problem, inter_block, execution); }};
  }
};

/// The argument that is refused; empty if none is.
std::string refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const OperandError& error) {
    CHECK(std::string(error.what()).find(error.argument()) != std::string::npos);
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.argument();
  }
  return {};
}

}  // namespace

TEST_CASE("legal operands are accepted by every operator", "[kernels]") {
  Legal legal;
  for (const auto& each : legal.operators()) {
    CHECK(refused(each).empty());
  }
}

TEST_CASE("every operator refuses problems without tokens, width, format or eps", "[kernels]") {
  Legal legal;
  const DepthProblem good = legal.problem;
  for (const auto& each : legal.operators()) {
    legal.problem = good;
    legal.problem.tokens = 0;
    CHECK(refused(each) == "problem.tokens");
    legal.problem = good;
    legal.problem.tokens = std::int64_t{1} << 60;
    CHECK(refused(each) == "problem.tokens");
    legal.problem = good;
    legal.problem.width = 0;
    CHECK(refused(each) == "problem.width");
    legal.problem = good;
    legal.problem.storage = static_cast<Storage>(7);
    CHECK(refused(each) == "problem.storage");
    legal.problem = good;
    legal.problem.eps = 0;
    CHECK(refused(each) == "problem.eps");
  }
}

TEST_CASE("every operator refuses a workspace that is missing, short or misaligned", "[kernels]") {
  Legal legal;
  const auto good = legal.execution.workspace;
  for (const auto& each : legal.operators()) {
    legal.execution.workspace = {};
    CHECK(refused(each) == "execution.workspace");
    legal.execution.workspace = good.first(64);
    CHECK(refused(each) == "execution.workspace");
    legal.execution.workspace = good.subspan(8);
    CHECK(refused(each) == "execution.workspace");
    legal.execution.workspace = good;
    CHECK(refused(each).empty());
  }
}

TEST_CASE("lists that are empty or too long are refused by name", "[kernels]") {
  Legal legal;
  const std::vector<DepthSource> many(cpu::kMaxSources + 1, legal.sources[0]);
  const std::vector<DepthSourceGradient> many_gradients(cpu::kMaxSources + 1, legal.accumulators[0]);
  for (const bool empty : {true, false}) {
    const std::span<const DepthSource> sources = empty ? std::span<const DepthSource>() : std::span(many);
    const std::span<const DepthSourceGradient> gradients =
        empty ? std::span<const DepthSourceGradient>() : std::span(many_gradients);
    CHECK(refused([&] {
            cpu::phase_one_forward(legal.problem, {sources, legal.queries}, legal.execution);
          }) == "sources");
    legal.aggregate.sources = sources;
    legal.merge.later = sources;
    legal.aggregate_backward.sources = gradients;
    legal.inter_block.sources = gradients;
    legal.merge_backward.later = sources;
    CHECK(refused([&] { cpu::aggregate_forward(legal.problem, legal.aggregate, legal.execution); }) == "sources");
    CHECK(refused([&] { cpu::merge_forward(legal.problem, legal.merge, legal.execution); }) == "later");
    CHECK(refused([&] { cpu::merge_backward(legal.problem, legal.merge_backward, legal.execution); }) == "later");
    CHECK(refused([&] { cpu::aggregate_backward(legal.problem, legal.aggregate_backward, legal.execution); }) ==
          "sources");
    CHECK(refused([&] { cpu::inter_block_backward(legal.problem, legal.inter_block, legal.execution); }) == "sources");
  }
  CHECK(refused([&] { cpu::phase_one_forward(legal.problem, {legal.sources, {}}, legal.execution); }) == "queries");
  CHECK(refused([&] {
          cpu::inter_block_backward(legal.problem, {legal.accumulators, {}}, legal.execution);
        }) == "readers");
  const std::vector<void*> one_scale = {legal.statistics[2].data()};
  CHECK(refused([&] {
          cpu::phase_one_forward(legal.problem, {legal.sources, legal.queries, false, one_scale}, legal.execution);
        }) == "inverse_rms_out");
}

TEST_CASE("null, misaligned and overlapping operands are refused by name and nothing is written", "[kernels]") {
  Legal legal;
  const std::vector<Rows<Bf16>> values_before = legal.values;
  const auto untouched = [&] {
    for (std::size_t i = 0; i < legal.values.size(); ++i) {
      CHECK(same_rows(legal.values[i], values_before[i]));
    }
  };
  const auto phase_one = [&] { cpu::phase_one_forward(legal.problem, legal.phase_one, legal.execution); };
  const DepthSource source = legal.sources[1];
  legal.sources[1].value = nullptr;
  CHECK(refused(phase_one) == "sources[1].value");
  legal.sources[1].value = reinterpret_cast<const std::byte*>(source.value) + 1;
  CHECK(refused(phase_one) == "sources[1].value");
  legal.sources[1] = source;
  legal.queries[0].lse = nullptr;
  CHECK(refused(phase_one) == "queries[0].lse");
  legal.queries[0].lse = legal.statistics[0].data();
  legal.queries[0].o = legal.values[1].data();  // a source that is also the output
  CHECK(refused(phase_one) == "queries[0].o");
  legal.queries[0].o = legal.values[1].data() + 90;  // the last row of it
  CHECK(refused(phase_one) == "queries[0].o");
  legal.queries.push_back(legal.queries[0]);
  legal.queries[0].o = legal.queries[1].o = legal.values[2].data();  // two outputs in one place
  legal.phase_one.queries = legal.queries;
  CHECK(refused(phase_one) == "queries[0].o");

  legal.aggregate.h = legal.values[0].data();
  CHECK(refused([&] { cpu::aggregate_forward(legal.problem, legal.aggregate, legal.execution); }) == "h");
  legal.merge.lse_in = nullptr;
  CHECK(refused([&] { cpu::merge_forward(legal.problem, legal.merge, legal.execution); }) == "lse_in");
  legal.merge.lse_in = legal.statistics[0].data();
  legal.merge.output = legal.values[4].data();
  CHECK(refused([&] { cpu::merge_forward(legal.problem, legal.merge, legal.execution); }) == "partial_out");
  legal.merge.partial_out = legal.values[2].data();  // where h goes
  CHECK(refused([&] { cpu::merge_forward(legal.problem, legal.merge, legal.execution); }) == "partial_out");
  legal.accumulators[1].gradient = legal.accumulators[0].gradient;
  CHECK(refused([&] { cpu::aggregate_backward(legal.problem, legal.aggregate_backward, legal.execution); }) ==
        "sources[0].gradient");
  legal.accumulators[1].gradient = legal.gradients[1].data();
  legal.readers[0].sole_source = true;
  CHECK(refused([&] { cpu::inter_block_backward(legal.problem, legal.inter_block, legal.execution); }) ==
        "readers[0].sole_source");
  legal.merge_backward.grad_partial = const_cast<void*>(legal.merge_backward.grad_h);
  CHECK(refused([&] { cpu::merge_backward(legal.problem, legal.merge_backward, legal.execution); }) == "grad_partial");
  untouched();
}

TEST_CASE("an instruction set the processor lacks is refused, as are impossible numbers of threads", "[kernels]") {
  Legal legal;
  legal.execution.isa = cpu::Isa::avx512;
  const std::string answer = refused([&] { cpu::aggregate_forward(legal.problem, legal.aggregate, legal.execution); });
  CHECK(answer == (cpu::is_supported(cpu::Isa::avx512) ? "" : "execution.isa"));
  CHECK_THROWS_AS(cpu::CpuThreads(0), std::invalid_argument);
  CHECK_THROWS_AS(cpu::CpuThreads(1025), std::invalid_argument);
  CHECK_THROWS_AS(cpu::workspace_bytes(legal.problem, 0, 1, 1), OperandError);
  CHECK_THROWS_AS(cpu::workspace_bytes(legal.problem, 1, cpu::kMaxQueries + 1, 1), OperandError);
  CHECK_THROWS_AS(cpu::workspace_bytes(legal.problem, 1, 1, 0), OperandError);
}

TEST_CASE("a workspace sized for many sources and queries serves fewer", "[kernels]") {
  for (const std::int64_t width : {8, 100, 5000}) {
    const DepthProblem problem{4, width, Storage::bf16, 1e-6};
    const std::size_t most = cpu::workspace_bytes(problem, 40, 40, 1);
    for (int n = 1; n <= 40; n += 3) {
      for (int queries = 1; queries <= 40; queries += 3) {
        CHECK(cpu::workspace_bytes(problem, n, queries, 1) <= most);
      }
    }
    CHECK(cpu::workspace_bytes(problem, 40, 40, 3) == 3 * most);
  }
}

TEST_CASE("the reference says which formats it has", "[kernels]") {
  Legal legal;
  CHECK_THROWS_WITH(aggregate_forward(legal.problem, legal.aggregate),
                    "depth attention: the reference has no bf16; legal: fp32, fp64 (see cpu_operators.hpp)");
}

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
  std::vector<const void*> weighted_sources;
  std::vector<void*> weighted_out;
  cpu::WeightedSum weighted;
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
    weighted_sources = {values[0].data(), values[1].data()};
    weighted_out = {values[2].data()};
    weighted = {weighted_sources, gradients[0].data(), weighted_out};
    execution = own(problem, 4, 4);
  }

  /// The argument that is refused, with every row as it was before the call; empty if none is refused.
  std::string refused(const std::function<void()>& call) {
    const std::vector<Rows<Bf16>> values_before = values;
    const std::vector<Rows<float>> gradients_before = gradients;
    const std::vector<Rows<float>> statistics_before = statistics;
    try {
      call();
    } catch (const OperandError& error) {
      CHECK(std::string(error.what()).find(error.argument()) != std::string::npos);
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
      bool untouched = true;
      for (std::size_t i = 0; i < values.size(); ++i) {
        untouched = untouched && same_rows(values[i], values_before[i]) &&
                    same_rows(gradients[i], gradients_before[i]) && same_rows(statistics[i], statistics_before[i]);
      }
      CHECK(untouched);
      return error.argument();
    }
    return {};
  }

  std::vector<std::function<void()>> operators() {
    return {[this] { cpu::phase_one_forward(problem, phase_one, execution); },
            [this] { cpu::aggregate_forward(problem, aggregate, execution); },
            [this] { cpu::merge_forward(problem, merge, execution); },
            [this] { cpu::add_output(problem, add, execution); },
            [this] { cpu::inverse_rms(problem, values[0].data(), statistics[0].data(), execution); },
            [this] { cpu::weighted_sum(problem, weighted, execution); },
            [this] { cpu::merge_backward(problem, merge_backward, execution); },
            [this] { cpu::aggregate_backward(problem, aggregate_backward, execution); },
            [this] { cpu::inter_block_backward(problem, inter_block, execution); }};
  }
};

}  // namespace

TEST_CASE("legal operands are accepted by every operator", "[kernels]") {
  Legal legal;
  for (const auto& each : legal.operators()) {
    CHECK(legal.refused(each).empty());
  }
}

TEST_CASE("every operator refuses problems without tokens, width, format or eps", "[kernels]") {
  Legal legal;
  const DepthProblem good = legal.problem;
  for (const auto& each : legal.operators()) {
    legal.problem = good;
    legal.problem.tokens = 0;
    CHECK(legal.refused(each) == "problem.tokens");
    legal.problem = good;
    legal.problem.tokens = std::int64_t{1} << 60;
    CHECK(legal.refused(each) == "problem.tokens");
    legal.problem = good;
    legal.problem.width = 0;
    CHECK(legal.refused(each) == "problem.width");
    legal.problem = good;
    legal.problem.storage = static_cast<Storage>(7);
    CHECK(legal.refused(each) == "problem.storage");
    legal.problem = good;
    legal.problem.eps = 0;
    CHECK(legal.refused(each) == "problem.eps");
  }
}

TEST_CASE("every operator refuses a workspace that is missing, short or misaligned", "[kernels]") {
  Legal legal;
  const auto good = legal.execution.workspace;
  for (const auto& each : legal.operators()) {
    legal.execution.workspace = {};
    CHECK(legal.refused(each) == "execution.workspace");
    legal.execution.workspace = good.first(64);
    CHECK(legal.refused(each) == "execution.workspace");
    legal.execution.workspace = good.subspan(8);
    CHECK(legal.refused(each) == "execution.workspace");
    legal.execution.workspace = good;
    CHECK(legal.refused(each).empty());
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
    CHECK(legal.refused([&] {
      cpu::phase_one_forward(legal.problem, {sources, legal.queries}, legal.execution);
    }) == "sources");
    legal.aggregate.sources = sources;
    legal.merge.later = sources;
    legal.aggregate_backward.sources = gradients;
    legal.inter_block.sources = gradients;
    legal.merge_backward.later = sources;
    CHECK(legal.refused([&] { cpu::aggregate_forward(legal.problem, legal.aggregate, legal.execution); }) == "sources");
    CHECK(legal.refused([&] { cpu::merge_forward(legal.problem, legal.merge, legal.execution); }) == "later");
    CHECK(legal.refused([&] { cpu::merge_backward(legal.problem, legal.merge_backward, legal.execution); }) == "later");
    CHECK(legal.refused([&] { cpu::aggregate_backward(legal.problem, legal.aggregate_backward, legal.execution); }) ==
          "sources");
    CHECK(legal.refused([&] { cpu::inter_block_backward(legal.problem, legal.inter_block, legal.execution); }) ==
          "sources");
  }
  CHECK(legal.refused([&] {
    cpu::phase_one_forward(legal.problem, {legal.sources, {}}, legal.execution);
  }) == "queries");
  CHECK(legal.refused([&] {
    cpu::inter_block_backward(legal.problem, {legal.accumulators, {}}, legal.execution);
  }) == "readers");
  for (const bool empty : {true, false}) {
    const std::vector<const void*> sources(empty ? 0 : cpu::kMaxSources + 1, legal.values[0].data());
    const std::vector<void*> outputs(empty ? 0 : cpu::kMaxQueries + 1, legal.values[2].data());
    legal.weighted = {sources, legal.gradients[0].data(), legal.weighted_out};
    CHECK(legal.refused([&] { cpu::weighted_sum(legal.problem, legal.weighted, legal.execution); }) == "sources");
    legal.weighted = {legal.weighted_sources, legal.gradients[0].data(), outputs};
    CHECK(legal.refused([&] { cpu::weighted_sum(legal.problem, legal.weighted, legal.execution); }) == "out");
  }
  const std::vector<void*> one_scale = {legal.statistics[2].data()};
  CHECK(legal.refused([&] {
    cpu::phase_one_forward(legal.problem, {legal.sources, legal.queries, false, one_scale}, legal.execution);
  }) == "inverse_rms_out");
}

TEST_CASE("null, misaligned and overlapping operands are refused by name and nothing is written", "[kernels]") {
  Legal legal;
  const auto phase_one = [&] { cpu::phase_one_forward(legal.problem, legal.phase_one, legal.execution); };
  const DepthSource source = legal.sources[1];
  legal.sources[1].value = nullptr;
  CHECK(legal.refused(phase_one) == "sources[1].value");
  legal.sources[1].value = reinterpret_cast<const std::byte*>(source.value) + 1;
  CHECK(legal.refused(phase_one) == "sources[1].value");
  legal.sources[1] = source;
  legal.queries[0].lse = nullptr;
  CHECK(legal.refused(phase_one) == "queries[0].lse");
  legal.queries[0].lse = legal.statistics[0].data();
  legal.queries[0].o = legal.values[1].data();  // a source that is also the output
  CHECK(legal.refused(phase_one) == "queries[0].o");
  legal.queries[0].o = legal.values[1].data() + 90;  // the last row of it
  CHECK(legal.refused(phase_one) == "queries[0].o");
  legal.queries.push_back(legal.queries[0]);
  legal.queries[0].o = legal.queries[1].o = legal.values[2].data();  // two outputs in one place
  legal.phase_one.queries = legal.queries;
  CHECK(legal.refused(phase_one) == "queries[0].o");

  const auto weighted_sum = [&] { cpu::weighted_sum(legal.problem, legal.weighted, legal.execution); };
  legal.weighted_out[0] = legal.values[1].data();  // a source that is also the output
  CHECK(legal.refused(weighted_sum) == "out[0]");
  legal.weighted_out[0] = legal.values[2].data();
  legal.weighted_sources[1] = nullptr;
  CHECK(legal.refused(weighted_sum) == "sources[1]");
  legal.weighted.weights = reinterpret_cast<const std::byte*>(legal.gradients[0].data()) + 2;
  legal.weighted_sources[1] = legal.values[1].data();
  CHECK(legal.refused(weighted_sum) == "weights");
  CHECK(legal.refused([&] {
    cpu::inverse_rms(legal.problem, legal.values[0].data(), legal.values[0].data(), legal.execution);
  }) == "inverse_rms");
  legal.add.inverse_rms = reinterpret_cast<std::byte*>(legal.statistics[0].data()) + 1;
  CHECK(legal.refused([&] { cpu::add_output(legal.problem, legal.add, legal.execution); }) == "inverse_rms");
  legal.add.inverse_rms = nullptr;
  legal.add.output = nullptr;
  CHECK(legal.refused([&] { cpu::add_output(legal.problem, legal.add, legal.execution); }) == "output");

  legal.aggregate.h = legal.values[0].data();
  CHECK(legal.refused([&] { cpu::aggregate_forward(legal.problem, legal.aggregate, legal.execution); }) == "h");
  legal.merge.lse_in = nullptr;
  CHECK(legal.refused([&] { cpu::merge_forward(legal.problem, legal.merge, legal.execution); }) == "lse_in");
  legal.merge.lse_in = legal.statistics[0].data();
  legal.merge.output = legal.values[4].data();
  CHECK(legal.refused([&] { cpu::merge_forward(legal.problem, legal.merge, legal.execution); }) == "partial_out");
  legal.merge.partial_out = legal.values[2].data();  // where h goes
  CHECK(legal.refused([&] { cpu::merge_forward(legal.problem, legal.merge, legal.execution); }) == "partial_out");
  legal.accumulators[1].gradient = legal.accumulators[0].gradient;
  CHECK(legal.refused([&] { cpu::aggregate_backward(legal.problem, legal.aggregate_backward, legal.execution); }) ==
        "sources[0].gradient");
  legal.accumulators[1].gradient = legal.gradients[1].data();
  legal.readers[0].sole_source = true;
  CHECK(legal.refused([&] { cpu::inter_block_backward(legal.problem, legal.inter_block, legal.execution); }) ==
        "readers[0].sole_source");
  legal.merge_backward.grad_partial = const_cast<void*>(legal.merge_backward.grad_h);
  CHECK(legal.refused([&] { cpu::merge_backward(legal.problem, legal.merge_backward, legal.execution); }) ==
        "grad_partial");
}

TEST_CASE("an instruction set the processor lacks is refused, as are impossible numbers of threads", "[kernels]") {
  Legal legal;
  legal.execution.isa = cpu::Isa::avx512;
  const std::string answer =
      legal.refused([&] { cpu::aggregate_forward(legal.problem, legal.aggregate, legal.execution); });
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

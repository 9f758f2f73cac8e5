// SPDX-License-Identifier: Apache-2.0
// Checks the operands of an operator, divides its tokens among the threads and picks the kernels.
#include "plumb/kernels/cpu_operators.hpp"

#include <algorithm>

#include "cpu_fp64.hpp"
#include "cpu_kernels.hpp"
#include "cpu_scratch.hpp"
#include "operator_rules.hpp"

namespace plumb::cpu {

namespace {

using namespace kernels_detail;

const StorageKernels& kernels_for(Storage storage, Isa isa) {
  const CpuKernels& all = isa == Isa::avx512 ? avx512_kernels()
                          : isa == Isa::avx2 ? avx2_kernels()
                                             : baseline_kernels();
  return storage == Storage::bf16 ? all.bf16 : storage == Storage::fp16 ? all.fp16 : all.fp32;
}

TaskShape shape_of(const DepthProblem& problem) { return {problem.width, static_cast<float>(problem.eps)}; }

// Runs `task` over all tokens, each thread a contiguous range of whole `unit`s of them.
template <class Task>
void run(const DepthProblem& problem, const Execution& execution, Task task, TaskFunction<Task> function,
         std::int64_t unit, std::size_t scratch) {
  struct Work {
    Task* task;
    TaskFunction<Task> function;
    std::int64_t tokens;
    std::int64_t unit;
    std::int64_t threads;
    std::byte* workspace;
    std::size_t scratch;
  };
  const int threads = execution.threads == nullptr ? 1 : execution.threads->num_threads();
  Work work{&task, function, problem.tokens, unit, threads, execution.workspace.data(), scratch};
  const auto part = [](void* context, int thread) {
    const Work& own = *static_cast<Work*>(context);
    const std::int64_t units = (own.tokens + own.unit - 1) / own.unit;
    const std::int64_t begin = std::min(own.tokens, units * thread / own.threads * own.unit);
    const std::int64_t end = std::min(own.tokens, units * (thread + 1) / own.threads * own.unit);
    if (begin == end) {
      return;
    }
    Task mine = *own.task;
    if constexpr (requires { mine.scratch; }) {
      mine.scratch = own.workspace + static_cast<std::size_t>(thread) * own.scratch;
    }
    own.function(mine, begin, end);
  };
  if (threads == 1) {
    part(&work, 0);
  } else {
    execution.threads->run(part, &work);
  }
}

std::size_t scratch_for(const DepthProblem& problem, std::size_t num_sources, std::size_t num_queries) {
  return scratch_bytes(problem, static_cast<std::int64_t>(num_sources), static_cast<std::int64_t>(num_queries));
}

// Stores may pass by the caches when the output is too large to stay there anyway and rows consist of whole lines.
bool whole_lines(const void* rows, const DepthProblem& problem, std::size_t element_bytes) {
  return reinterpret_cast<std::uintptr_t>(rows) % 64 == 0 &&
         static_cast<std::size_t>(problem.width) * element_bytes % 64 == 0;
}

}  // namespace

void inverse_rms(const DepthProblem& problem, const void* block, void* inverse_rms, const Execution& execution) {
  const CpuOperandCheck check("inverse_rms", problem);
  check.workspace(execution, 1, 1);
  check.operands([&](const auto& visit) {
    visit(check.value("block", block));
    visit(out(check.statistics("inverse_rms", inverse_rms)));
  });
  if (problem.storage == Storage::fp64) {
    plumb::inverse_rms(problem, block, inverse_rms);
    return;
  }
  run<ScaleTask>(problem, execution, {shape_of(problem), block, static_cast<float*>(inverse_rms)},
                 kernels_for(problem.storage, execution.isa).inverse_rms, 1, scratch_for(problem, 1, 1));
}

void add_output(const DepthProblem& problem, const AddOutput& args, const Execution& execution) {
  const CpuOperandCheck check("add_output", problem);
  check.workspace(execution, 1, 1);
  check.operands([&](const auto& visit) { visit_operands(check, args, visit); });
  if (problem.storage == Storage::fp64) {
    add_output_fp64(problem, args);
    return;
  }
  run<AddTask>(problem, execution,
               {shape_of(problem), args.partial, args.output, args.out, static_cast<float*>(args.inverse_rms)},
               kernels_for(problem.storage, execution.isa).add_output, 1, scratch_for(problem, 1, 1));
}

void weighted_sum(const DepthProblem& problem, const WeightedSum& args, const Execution& execution) {
  const CpuOperandCheck check("weighted_sum", problem);
  check.count("sources", args.sources.size(), kMaxSources);
  check.count("out", args.out.size(), kMaxQueries);
  check.workspace(execution, args.sources.size(), args.out.size());
  check.operands([&](const auto& visit) { visit_operands(check, args, visit); });
  if (problem.storage == Storage::fp64) {
    weighted_sum_fp64(problem, args);
    return;
  }
  bool stream = check.sizes().value_bytes >= execution.stream_bytes;
  for (const void* each : args.out) {
    stream = stream && whole_lines(each, problem, check.sizes().value_alignment);
  }
  run<WeightedSumTask>(problem, execution,
                       {.shape = shape_of(problem),
                        .sources = args.sources.data(),
                        .num_sources = static_cast<int>(args.sources.size()),
                        .weights = static_cast<const float*>(args.weights),
                        .stride = static_cast<std::int64_t>(args.out.size()),
                        .out = args.out.data(),
                        .num_outputs = static_cast<int>(args.out.size()),
                        .stream = stream},
                       kernels_for(problem.storage, execution.isa).weighted_sum, 1,
                       scratch_for(problem, args.sources.size(), args.out.size()));
}

void phase_one_forward(const DepthProblem& problem, const PhaseOneForward& args, const Execution& execution) {
  const CpuOperandCheck check("phase_one_forward", problem);
  check.count("sources", args.sources.size(), kMaxSources);
  check.count("queries", args.queries.size(), kMaxQueries);
  require_consistent(check, args);
  check.workspace(execution, args.sources.size(), args.queries.size());
  const bool wide = args.fp32_mixture;
  check.operands([&](const auto& visit) { visit_operands(check, args, visit); });
  if (problem.storage == Storage::fp64) {
    phase_one_fp64(problem, args);
    return;
  }
  bool stream = check.sizes().value_bytes >= execution.stream_bytes;
  for (const PhaseOneQuery& each : args.queries) {
    stream = stream && whole_lines(each.o, problem, wide ? sizeof(float) : check.sizes().value_alignment);
  }
  run<PhaseOneTask>(problem, execution,
                    {.shape = shape_of(problem),
                     .sources = args.sources.data(),
                     .num_sources = static_cast<int>(args.sources.size()),
                     .inverse_rms_out = args.inverse_rms_out.empty() ? nullptr : args.inverse_rms_out.data(),
                     .queries = args.queries.data(),
                     .num_queries = static_cast<int>(args.queries.size()),
                     .stream = stream},
                    kernels_for(problem.storage, execution.isa).phase_one[wide ? 1 : 0], 1,
                    scratch_for(problem, args.sources.size(), args.queries.size()));
}

void aggregate_forward(const DepthProblem& problem, const AggregateForward& args, const Execution& execution) {
  const CpuOperandCheck check("aggregate_forward", problem);
  check.count("sources", args.sources.size(), kMaxSources);
  const float norm_eps = checked_norm_eps(check, args.norm);
  check.workspace(execution, args.sources.size(), 1);
  check.operands([&](const auto& visit) { visit_operands(check, args, visit); });
  if (problem.storage == Storage::fp64) {
    aggregate_fp64(problem, args);
    return;
  }
  run<MixTask>(problem, execution,
               {.shape = shape_of(problem),
                .sources = args.sources.data(),
                .num_sources = static_cast<int>(args.sources.size()),
                .query = static_cast<const float*>(args.query),
                .norm_gain = static_cast<const float*>(args.norm.gain),
                .norm_eps = norm_eps,
                .h = args.h,
                .lse = static_cast<float*>(args.lse),
                .stream = check.sizes().value_bytes >= execution.stream_bytes &&
                          whole_lines(args.h, problem, check.sizes().value_alignment)},
               kernels_for(problem.storage, execution.isa).mix[0], 1, scratch_for(problem, args.sources.size(), 1));
}

void merge_forward(const DepthProblem& problem, const MergeForward& args, const Execution& execution) {
  const CpuOperandCheck check("merge_forward", problem);
  check.count("later", args.later.size(), kMaxSources);
  const float norm_eps = checked_norm_eps(check, args.norm);
  require_consistent(check, args);
  check.workspace(execution, std::max<std::size_t>(args.later.size(), 1), 1);
  check.operands([&](const auto& visit) { visit_operands(check, args, visit); });
  if (problem.storage == Storage::fp64) {
    merge_fp64(problem, args);
    return;
  }
  run<MixTask>(problem, execution,
               {.shape = shape_of(problem),
                .prior = args.o,
                .prior_lse = static_cast<const float*>(args.lse_in),
                .sources = args.later.data(),
                .num_sources = static_cast<int>(args.later.size()),
                .output = args.output,
                .partial_out = args.partial_out,
                .query = static_cast<const float*>(args.query),
                .norm_gain = static_cast<const float*>(args.norm.gain),
                .norm_eps = norm_eps,
                .h = args.h,
                .lse = static_cast<float*>(args.lse_out),
                .stream = check.sizes().value_bytes >= execution.stream_bytes &&
                          whole_lines(args.h, problem, check.sizes().value_alignment)},
               kernels_for(problem.storage, execution.isa).mix[args.fp32_mixture ? 1 : 0], 1,
               scratch_for(problem, std::max<std::size_t>(args.later.size(), 1), 1));
}

void merge_backward(const DepthProblem& problem, const MergeBackward& args, const Execution& execution) {
  const CpuOperandCheck check("merge_backward", problem);
  if (counts_later(args)) {
    check.count("later", args.later.size(), kMaxSources);
  }
  require_consistent(check, args);
  check.workspace(execution, std::max<std::size_t>(args.later.size(), 1), 1);
  check.operands([&](const auto& visit) { visit_operands(check, args, visit); });
  if (problem.storage == Storage::fp64) {
    merge_backward_fp64(problem, args);
    return;
  }
  run<MergeBackwardTask>(problem, execution,
                         {.shape = shape_of(problem),
                          .mixture = static_cast<const float*>(args.o),
                          .mixture_lse = static_cast<const float*>(args.lse_in),
                          .later = args.later.data(),
                          .num_later = static_cast<int>(args.later.size()),
                          .query = static_cast<const float*>(args.query),
                          .grad_h = static_cast<const float*>(args.grad_h),
                          .lse = static_cast<const float*>(args.lse),
                          .delta = static_cast<float*>(args.delta),
                          .grad_partial = static_cast<float*>(args.grad_partial),
                          .query_sums = static_cast<float*>(args.query_sums)},
                         kernels_for(problem.storage, execution.isa).merge_backward, kTokensPerRun,
                         scratch_for(problem, std::max<std::size_t>(args.later.size(), 1), 1));
}

void aggregate_backward(const DepthProblem& problem, const AggregateBackward& args, const Execution& execution) {
  const CpuOperandCheck check("aggregate_backward", problem);
  check.count("sources", args.sources.size(), kMaxSources);
  check.workspace(execution, args.sources.size(), 1);
  check.operands([&](const auto& visit) { visit_operands(check, args, visit); });
  if (problem.storage == Storage::fp64) {
    plumb::aggregate_backward(problem, args);
    return;
  }
  bool stream = check.sizes().gradient_bytes >= execution.stream_bytes;
  for (const DepthSourceGradient& each : args.sources) {
    stream = stream && whole_lines(each.gradient, problem, sizeof(float));
  }
  run<AggregateBackwardTask>(problem, execution,
                             {.shape = shape_of(problem),
                              .sources = args.sources.data(),
                              .num_sources = static_cast<int>(args.sources.size()),
                              .query = static_cast<const float*>(args.query),
                              .grad_h = static_cast<const float*>(args.grad_h),
                              .query_sums = static_cast<float*>(args.query_sums),
                              .stream = stream},
                             kernels_for(problem.storage, execution.isa).aggregate_backward, kTokensPerRun,
                             scratch_for(problem, args.sources.size(), 1));
}

void inter_block_backward(const DepthProblem& problem, const InterBlockBackward& args, const Execution& execution) {
  const CpuOperandCheck check("inter_block_backward", problem);
  check.count("sources", args.sources.size(), kMaxSources);
  check.count("readers", args.readers.size(), kMaxQueries);
  require_consistent(check, args);
  check.workspace(execution, args.sources.size(), args.readers.size());
  check.operands([&](const auto& visit) { visit_operands(check, args, visit); });
  if (problem.storage == Storage::fp64) {
    plumb::inter_block_backward(problem, args);
    return;
  }
  bool stream = check.sizes().gradient_bytes >= execution.stream_bytes;
  for (const DepthSourceGradient& each : args.sources) {
    stream = stream && whole_lines(each.gradient, problem, sizeof(float));
  }
  run<InterBlockTask>(problem, execution,
                      {.shape = shape_of(problem),
                       .sources = args.sources.data(),
                       .num_sources = static_cast<int>(args.sources.size()),
                       .readers = args.readers.data(),
                       .num_readers = static_cast<int>(args.readers.size()),
                       .stream = stream},
                      kernels_for(problem.storage, execution.isa).inter_block_backward, kTokensPerRun,
                      scratch_for(problem, args.sources.size(), args.readers.size()));
}

void reduce_query_gradient(const DepthProblem& problem, const QueryReduction& args) {
  plumb::reduce_query_gradient(problem, args);
}

}  // namespace plumb::cpu

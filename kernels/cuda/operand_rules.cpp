// SPDX-License-Identifier: Apache-2.0
#include "cuda/operand_rules.hpp"

#include "cuda/tables.hpp"
#include "operator_rules.hpp"

namespace plumb::cuda_detail {

namespace {

using namespace kernels_detail;

// Checks of one call: the problem at once, the operands as they are listed.
class Rules : public CpuOperandCheck {
 public:
  Rules(const char* operation, const DepthProblem& problem) : CpuOperandCheck(operation, problem), problem_(problem) {
    if (problem.storage == Storage::fp64) {
      refuse("problem.storage", "is fp64, which has no GPU kernels; legal: fp32, bf16, fp16");
    }
    constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;
    if (problem.tokens > kMostBlocks / kMostSources) {
      refuse("problem.tokens",
             "is " + std::to_string(problem.tokens) + "; legal: 1.." + std::to_string(kMostBlocks / kMostSources));
    }
  }

  void sources(const char* list, std::size_t size) const { count(list, size, cuda::kMaxSources); }

  void norm(const OutputNorm& norm) const { (void)checked_norm_eps(*this, norm); }

  void space(const cuda::Execution& execution, std::size_t num_sources, std::size_t num_queries) const {
    const std::size_t needed =
        table_bytes(problem_.tokens, static_cast<int>(num_sources), static_cast<int>(num_queries));
    if (execution.workspace == nullptr) {
      refuse("execution.workspace", "is null; at least " + std::to_string(needed) + " bytes are needed");
    }
    if (execution.workspace_bytes < needed) {
      refuse("execution.workspace", "has " + std::to_string(execution.workspace_bytes) + " bytes; at least " +
                                        std::to_string(needed) + " are needed");
    }
    if (reinterpret_cast<std::uintptr_t>(execution.workspace) % 256 != 0) {
      refuse("execution.workspace", "is not aligned to 256 bytes");
    }
  }

  // The workspace as an operand: it may overlap nothing.
  static Operand scratch(const cuda::Execution& execution) {
    return {.name = "execution.workspace",
            .data = execution.workspace,
            .size_bytes = execution.workspace_bytes,
            .output = true};
  }

 private:
  DepthProblem problem_;
};

}  // namespace

void check(const DepthProblem& problem, const InverseRms& args, const cuda::Execution&) {
  const Rules of("inverse_rms", problem);
  of.operands([&](const auto& visit) {
    visit(of.value("block", args.block));
    visit(out(of.statistics("inverse_rms", args.inverse_rms)));
  });
}

void check(const DepthProblem& problem, const cpu::AddOutput& args, const cuda::Execution&) {
  const Rules of("add_output", problem);
  of.operands([&](const auto& visit) { visit_operands(of, args, visit); });
}

void check(const DepthProblem& problem, const cpu::WeightedSum& args, const cuda::Execution&) {
  const Rules of("weighted_sum", problem);
  of.sources("sources", args.sources.size());
  of.count("out", args.out.size(), cuda::kMaxQueries);
  of.operands([&](const auto& visit) { visit_operands(of, args, visit); });
}

void check(const DepthProblem& problem, const PhaseOneForward& args, const cuda::Execution& execution) {
  const Rules of("phase_one_forward", problem);
  of.sources("sources", args.sources.size());
  of.count("queries", args.queries.size(), cuda::kMaxQueries);
  require_consistent(of, args);
  of.space(execution, args.sources.size(), args.queries.size());
  of.operands([&](const auto& visit) {
    visit_operands(of, args, visit);
    visit(Rules::scratch(execution));
  });
}

void check(const DepthProblem& problem, const AggregateForward& args, const cuda::Execution&) {
  const Rules of("aggregate_forward", problem);
  of.sources("sources", args.sources.size());
  of.norm(args.norm);
  of.operands([&](const auto& visit) { visit_operands(of, args, visit); });
}

void check(const DepthProblem& problem, const MergeForward& args, const cuda::Execution&) {
  const Rules of("merge_forward", problem);
  of.sources("later", args.later.size());
  of.norm(args.norm);
  require_consistent(of, args);
  of.operands([&](const auto& visit) { visit_operands(of, args, visit); });
}

void check(const DepthProblem& problem, const MergeBackward& args, const cuda::Execution& execution) {
  const Rules of("merge_backward", problem);
  if (counts_later(args)) {
    of.sources("later", args.later.size());
  }
  require_consistent(of, args);
  of.space(execution, args.later.size(), 1);
  of.operands([&](const auto& visit) {
    visit_operands(of, args, visit);
    visit(Rules::scratch(execution));
  });
}

void check(const DepthProblem& problem, const AggregateBackward& args, const cuda::Execution& execution) {
  const Rules of("aggregate_backward", problem);
  of.sources("sources", args.sources.size());
  of.space(execution, args.sources.size(), 1);
  of.operands([&](const auto& visit) {
    visit_operands(of, args, visit);
    visit(Rules::scratch(execution));
  });
}

void check(const DepthProblem& problem, const InterBlockBackward& args, const cuda::Execution& execution) {
  const Rules of("inter_block_backward", problem);
  of.sources("sources", args.sources.size());
  of.count("readers", args.readers.size(), cuda::kMaxQueries);
  require_consistent(of, args);
  of.space(execution, args.sources.size(), args.readers.size());
  of.operands([&](const auto& visit) {
    visit_operands(of, args, visit);
    visit(Rules::scratch(execution));
  });
}

void check(const DepthProblem& problem, const QueryReduction& args, const cuda::Execution&) {
  const Rules of("reduce_query_gradient", problem);
  of.operands([&](const auto& visit) {
    visit(out(of.runs("query_sums", args.query_sums)));
    visit(of.query("query", args.query));
    visit(of.query("gain", args.gain));
    visit(out(of.query("grad_query", args.grad_query)));
    visit(out(of.query("grad_gain", args.grad_gain)));
  });
}

}  // namespace plumb::cuda_detail

namespace plumb::cuda {

// Here and not with the kernels, so that it can be called, and tested, without a GPU.
std::size_t workspace_bytes(const DepthProblem& problem, int num_sources, int num_queries) {
  const cuda_detail::Rules of("workspace_bytes", problem);
  if (num_sources < 1 || num_sources > kMaxSources) {
    of.refuse("num_sources", "is " + std::to_string(num_sources) + "; legal: 1.." + std::to_string(kMaxSources));
  }
  if (num_queries < 1 || num_queries > kMaxQueries) {
    of.refuse("num_queries", "is " + std::to_string(num_queries) + "; legal: 1.." + std::to_string(kMaxQueries));
  }
  return cuda_detail::table_bytes(problem.tokens, num_sources, num_queries);
}

}  // namespace plumb::cuda

// SPDX-License-Identifier: Apache-2.0
#include "cuda/operand_rules.hpp"

#include "cuda/tables.hpp"
#include "operand_list.hpp"

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

  void both_or_neither(const char* a_name, const void* a, const char* b_name, const void* b) const {
    if ((a == nullptr) != (b == nullptr)) {
      refuse(a == nullptr ? a_name : b_name,
             std::string("is null; legal: both ") + a_name + " and " + b_name + ", or neither");
    }
  }

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
  of.operands([&](const auto& visit) {
    visit(alias(optional(of.value("partial", args.partial)), kPartialGroup));
    visit(alias(of.value("output", args.output), kPartialGroup));
    visit(alias(out(of.value("out", args.out)), kPartialGroup));
    visit(out(optional(of.statistics("inverse_rms", args.inverse_rms))));
  });
}

void check(const DepthProblem& problem, const cpu::WeightedSum& args, const cuda::Execution&) {
  const Rules of("weighted_sum", problem);
  of.sources("sources", args.sources.size());
  of.count("out", args.out.size(), cuda::kMaxQueries);
  of.operands([&](const auto& visit) {
    for (std::size_t i = 0; i < args.sources.size(); ++i) {
      visit(element(of.value(nullptr, args.sources[i]), "sources", i));
    }
    Operand weights = of.statistics("weights", args.weights);
    weights.size_bytes *= args.sources.size() * args.out.size();
    visit(weights);
    for (std::size_t g = 0; g < args.out.size(); ++g) {
      visit(element(out(of.value(nullptr, args.out[g])), "out", g));
    }
  });
}

void check(const DepthProblem& problem, const PhaseOneForward& args, const cuda::Execution& execution) {
  const Rules of("phase_one_forward", problem);
  of.sources("sources", args.sources.size());
  of.count("queries", args.queries.size(), cuda::kMaxQueries);
  if (!args.inverse_rms_out.empty() && args.inverse_rms_out.size() != args.sources.size()) {
    of.refuse("inverse_rms_out", "has " + std::to_string(args.inverse_rms_out.size()) + " elements; legal: 0 or " +
                                     std::to_string(args.sources.size()) + ", one per source");
  }
  of.space(execution, args.sources.size(), args.queries.size());
  of.operands([&](const auto& visit) {
    visit_sources(of, "sources", args.sources, visit);
    for (std::size_t i = 0; i < args.inverse_rms_out.size(); ++i) {
      visit(element(out(optional(of.statistics(nullptr, args.inverse_rms_out[i]))), "inverse_rms_out", i));
    }
    for (std::size_t g = 0; g < args.queries.size(); ++g) {
      const PhaseOneQuery& own = args.queries[g];
      visit(element(of.query("query", own.query), "queries", g));
      visit(element(out(optional(args.fp32_mixture ? of.gradient("o", own.o) : of.value("o", own.o))), "queries", g));
      visit(element(out(of.statistics("lse", own.lse)), "queries", g));
    }
    visit(Rules::scratch(execution));
  });
}

void check(const DepthProblem& problem, const AggregateForward& args, const cuda::Execution&) {
  const Rules of("aggregate_forward", problem);
  of.sources("sources", args.sources.size());
  of.norm(args.norm);
  of.operands([&](const auto& visit) {
    visit_sources(of, "sources", args.sources, visit);
    visit(of.query("query", args.query));
    visit(optional(of.query("norm.gain", args.norm.gain)));
    visit(out(optional(of.value("h", args.h))));
    visit(out(optional(of.statistics("lse", args.lse))));
  });
}

void check(const DepthProblem& problem, const MergeForward& args, const cuda::Execution&) {
  const Rules of("merge_forward", problem);
  of.sources("later", args.later.size());
  of.norm(args.norm);
  of.both_or_neither("o", args.o, "lse_in", args.lse_in);
  of.both_or_neither("output", args.output, "partial_out", args.partial_out);
  of.operands([&](const auto& visit) {
    visit(alias(optional(args.fp32_mixture ? of.gradient("o", args.o) : of.value("o", args.o)), kMixtureGroup));
    visit(alias(optional(of.statistics("lse_in", args.lse_in)), kLseGroup));
    for (std::size_t i = 0; i < args.later.size(); ++i) {
      const Operand value = element(of.value("value", args.later[i].value), "later", i);
      visit(i + 1 == args.later.size() ? alias(value, kPartialGroup) : value);
      visit(element(optional(of.statistics("inverse_rms", args.later[i].inverse_rms)), "later", i));
    }
    visit(alias(optional(of.value("output", args.output)), kPartialGroup));
    visit(alias(out(optional(of.value("partial_out", args.partial_out))), kPartialGroup));
    visit(of.query("query", args.query));
    visit(optional(of.query("norm.gain", args.norm.gain)));
    visit(alias(out(of.value("h", args.h)), kMixtureGroup));
    visit(alias(out(optional(of.statistics("lse_out", args.lse_out))), kLseGroup));
  });
}

void check(const DepthProblem& problem, const MergeBackward& args, const cuda::Execution& execution) {
  const Rules of("merge_backward", problem);
  if (args.o == nullptr || args.grad_partial != nullptr || !args.later.empty()) {
    of.sources("later", args.later.size());
  }
  of.both_or_neither("o", args.o, "lse_in", args.lse_in);
  of.space(execution, args.later.size(), 1);
  of.operands([&](const auto& visit) {
    visit(optional(of.gradient("o", args.o)));
    visit(optional(of.statistics("lse_in", args.lse_in)));
    visit_sources(of, "later", args.later, visit);
    visit(of.query("query", args.query));
    visit(of.gradient("grad_h", args.grad_h));
    visit(of.statistics("lse", args.lse));
    visit(out(of.statistics("delta", args.delta)));
    visit(optional(out(of.gradient("grad_partial", args.grad_partial))));
    visit(optional(out(of.runs("query_sums", args.query_sums)), args.grad_partial == nullptr));
    visit(Rules::scratch(execution));
  });
}

void check(const DepthProblem& problem, const AggregateBackward& args, const cuda::Execution& execution) {
  const Rules of("aggregate_backward", problem);
  of.sources("sources", args.sources.size());
  of.space(execution, args.sources.size(), 1);
  of.operands([&](const auto& visit) {
    visit_gradients(of, args.sources, visit);
    visit(of.query("query", args.query));
    visit(of.gradient("grad_h", args.grad_h));
    visit(out(of.runs("query_sums", args.query_sums)));
    visit(Rules::scratch(execution));
  });
}

void check(const DepthProblem& problem, const InterBlockBackward& args, const cuda::Execution& execution) {
  const Rules of("inter_block_backward", problem);
  of.sources("sources", args.sources.size());
  of.count("readers", args.readers.size(), cuda::kMaxQueries);
  of.space(execution, args.sources.size(), args.readers.size());
  for (std::size_t l = 0; l < args.readers.size(); ++l) {
    if (args.readers[l].sole_source && args.sources.size() != 1) {
      of.refuse("readers[" + std::to_string(l) + "].sole_source",
                "is set, but there are " + std::to_string(args.sources.size()) + " sources; legal: 1");
    }
  }
  of.operands([&](const auto& visit) {
    visit_gradients(of, args.sources, visit);
    for (std::size_t l = 0; l < args.readers.size(); ++l) {
      const InterBlockReader& own = args.readers[l];
      visit(element(of.query("query", own.query), "readers", l));
      visit(element(of.gradient("grad_h", own.grad_h), "readers", l));
      visit(element(optional(of.statistics("lse", own.lse), own.sole_source), "readers", l));
      visit(element(optional(of.statistics("delta", own.delta), own.sole_source), "readers", l));
      visit(element(optional(out(of.runs("query_sums", own.query_sums)), own.sole_source), "readers", l));
    }
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

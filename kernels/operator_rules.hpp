// SPDX-License-Identifier: Apache-2.0
// operator_rules.hpp (private): what an operator demands of its operands, on the CPU and on a GPU alike.
//
// require_consistent() refuses arguments that contradict each other; visit_operands() lists the operands of a call, for
// CpuOperandCheck::operands(). How many there may be, and the workspace, are the device's own.
#pragma once

#include <string>

#include "operand_list.hpp"

namespace plumb::kernels_detail {

inline void require_both_or_neither(const CpuOperandCheck& of, const char* a_name, const void* a, const char* b_name,
                                    const void* b) {
  if ((a == nullptr) != (b == nullptr)) {
    of.refuse(a == nullptr ? a_name : b_name,
              std::string("is null; legal: both ") + a_name + " and " + b_name + ", or neither");
  }
}

inline void require_consistent(const CpuOperandCheck& of, const PhaseOneForward& args) {
  if (!args.inverse_rms_out.empty() && args.inverse_rms_out.size() != args.sources.size()) {
    of.refuse("inverse_rms_out", "has " + std::to_string(args.inverse_rms_out.size()) + " elements; legal: 0 or " +
                                     std::to_string(args.sources.size()) + ", one per source");
  }
}

inline void require_consistent(const CpuOperandCheck& of, const MergeForward& args) {
  require_both_or_neither(of, "o", args.o, "lse_in", args.lse_in);
  require_both_or_neither(of, "output", args.output, "partial_out", args.partial_out);
}

inline void require_consistent(const CpuOperandCheck& of, const MergeBackward& args) {
  require_both_or_neither(of, "o", args.o, "lse_in", args.lse_in);
}

inline void require_consistent(const CpuOperandCheck& of, const InterBlockBackward& args) {
  for (std::size_t l = 0; l < args.readers.size(); ++l) {
    if (args.readers[l].sole_source && args.sources.size() != 1) {
      of.refuse("readers[" + std::to_string(l) + "].sole_source",
                "is set, but there are " + std::to_string(args.sources.size()) + " sources; legal: 1");
    }
  }
}

/// Whether the number of later sources must be legal; else there are none, as a merge without a partial may have.
inline bool counts_later(const MergeBackward& args) {
  return args.o == nullptr || args.grad_partial != nullptr || !args.later.empty();
}

template <class Visit>
void visit_operands(const CpuOperandCheck& of, const cpu::AddOutput& args, const Visit& visit) {
  visit(alias(optional(of.value("partial", args.partial)), kPartialGroup));
  visit(alias(of.value("output", args.output), kPartialGroup));
  visit(alias(out(of.value("out", args.out)), kPartialGroup));
  visit(out(optional(of.statistics("inverse_rms", args.inverse_rms))));
}

template <class Visit>
void visit_operands(const CpuOperandCheck& of, const cpu::WeightedSum& args, const Visit& visit) {
  for (std::size_t i = 0; i < args.sources.size(); ++i) {
    visit(element(of.value(nullptr, args.sources[i]), "sources", i));
  }
  Operand weights = of.statistics("weights", args.weights);
  weights.size_bytes *= args.sources.size() * args.out.size();
  visit(weights);
  for (std::size_t g = 0; g < args.out.size(); ++g) {
    visit(element(out(of.value(nullptr, args.out[g])), "out", g));
  }
}

template <class Visit>
void visit_operands(const CpuOperandCheck& of, const PhaseOneForward& args, const Visit& visit) {
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
}

template <class Visit>
void visit_operands(const CpuOperandCheck& of, const AggregateForward& args, const Visit& visit) {
  visit_sources(of, "sources", args.sources, visit);
  visit(of.query("query", args.query));
  visit(optional(of.query("norm.gain", args.norm.gain)));
  visit(out(optional(of.value("h", args.h))));
  visit(out(optional(of.statistics("lse", args.lse))));
}

template <class Visit>
void visit_operands(const CpuOperandCheck& of, const MergeForward& args, const Visit& visit) {
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
}

template <class Visit>
void visit_operands(const CpuOperandCheck& of, const MergeBackward& args, const Visit& visit) {
  visit(optional(of.gradient("o", args.o)));
  visit(optional(of.statistics("lse_in", args.lse_in)));
  visit_sources(of, "later", args.later, visit);
  visit(of.query("query", args.query));
  visit(of.gradient("grad_h", args.grad_h));
  visit(of.statistics("lse", args.lse));
  visit(out(of.statistics("delta", args.delta)));
  visit(optional(out(of.gradient("grad_partial", args.grad_partial))));
  visit(optional(out(of.runs("query_sums", args.query_sums)), args.grad_partial == nullptr));
}

template <class Visit>
void visit_operands(const CpuOperandCheck& of, const AggregateBackward& args, const Visit& visit) {
  visit_gradients(of, args.sources, visit);
  visit(of.query("query", args.query));
  visit(of.gradient("grad_h", args.grad_h));
  visit(out(of.runs("query_sums", args.query_sums)));
}

template <class Visit>
void visit_operands(const CpuOperandCheck& of, const InterBlockBackward& args, const Visit& visit) {
  visit_gradients(of, args.sources, visit);
  for (std::size_t l = 0; l < args.readers.size(); ++l) {
    const InterBlockReader& own = args.readers[l];
    visit(element(of.query("query", own.query), "readers", l));
    visit(element(of.gradient("grad_h", own.grad_h), "readers", l));
    visit(element(optional(of.statistics("lse", own.lse), own.sole_source), "readers", l));
    visit(element(optional(of.statistics("delta", own.delta), own.sole_source), "readers", l));
    visit(element(optional(out(of.runs("query_sums", own.query_sums)), own.sole_source), "readers", l));
  }
}

}  // namespace plumb::kernels_detail

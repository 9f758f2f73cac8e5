// SPDX-License-Identifier: Apache-2.0
// operand_list.hpp (private): how the operands of an operator are described to its check, on the CPU and on a GPU.
//
// A description is a value; nothing is stored or allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu_operand_check.hpp"

namespace plumb::kernels_detail {

inline Operand out(Operand operand) {
  operand.output = true;
  return operand;
}
inline Operand optional(Operand operand, bool yes = true) {
  operand.optional = yes;
  return operand;
}
inline Operand alias(Operand operand, int group) {
  operand.alias_group = group;
  return operand;
}
inline Operand element(Operand operand, const char* list, std::size_t index) {
  operand.list = list;
  operand.index = static_cast<std::int64_t>(index);
  return operand;
}

// Groups of operands that may be the same memory.
inline constexpr int kMixtureGroup = 1;
inline constexpr int kLseGroup = 2;
inline constexpr int kPartialGroup = 3;

template <class Visit>
void visit_sources(const CpuOperandCheck& of, const char* list, std::span<const DepthSource> sources,
                   const Visit& visit) {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    visit(element(of.value("value", sources[i].value), list, i));
    visit(element(optional(of.statistics("inverse_rms", sources[i].inverse_rms)), list, i));
  }
}

template <class Visit>
void visit_gradients(const CpuOperandCheck& of, std::span<const DepthSourceGradient> sources, const Visit& visit) {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    visit(element(of.value("source.value", sources[i].source.value), "sources", i));
    visit(element(optional(of.statistics("source.inverse_rms", sources[i].source.inverse_rms)), "sources", i));
    visit(element(out(of.gradient("gradient", sources[i].gradient)), "sources", i));
  }
}

inline float checked_norm_eps(const CpuOperandCheck& check, const OutputNorm& norm) {
  if (norm.gain != nullptr && !(norm.eps > 0)) {
    check.refuse("norm.eps", "is not a positive number");
  }
  return static_cast<float>(norm.eps);
}

}  // namespace plumb::kernels_detail

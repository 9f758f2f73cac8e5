// SPDX-License-Identifier: Apache-2.0
#include "cpu_operand_check.hpp"

#include <cmath>
#include <limits>

#include "cpu_scratch.hpp"

namespace plumb::kernels_detail {

CpuOperandCheck::CpuOperandCheck(const char* operation, const DepthProblem& problem)
    : operation_(operation), problem_(problem) {
  const int format = static_cast<int>(problem.storage);
  if (format < 0 || format > static_cast<int>(Storage::fp16)) {
    refuse("problem.storage", "is format number " + std::to_string(format) + "; legal: fp32, fp64, bf16, fp16");
  }
  if (problem.tokens < 1) {
    refuse("problem.tokens", "is " + std::to_string(problem.tokens) + "; legal: 1 or more");
  }
  constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;
  if (problem.width < 1 || problem.width > kMaxWidth) {
    refuse("problem.width", "is " + std::to_string(problem.width) + "; legal: 1.." + std::to_string(kMaxWidth));
  }
  constexpr std::int64_t kMaxElements = std::numeric_limits<std::int64_t>::max() / 64;
  if (problem.tokens > kMaxElements / problem.width) {
    refuse("problem.tokens", "is " + std::to_string(problem.tokens) + ", more than a tensor of this width can have");
  }
  if (!(problem.eps > 0) || !std::isfinite(problem.eps)) {
    refuse("problem.eps", "is " + std::to_string(problem.eps) + "; legal: any positive number");
  }
  sizes_.value_alignment = bytes_per_element(problem.storage);
  sizes_.gradient_alignment = bytes_per_element(gradient_storage(problem.storage));
  const auto tokens = static_cast<std::size_t>(problem.tokens);
  const auto width = static_cast<std::size_t>(problem.width);
  sizes_.value_bytes = tokens * width * sizes_.value_alignment;
  sizes_.gradient_bytes = tokens * width * sizes_.gradient_alignment;
  sizes_.statistics_bytes = tokens * sizes_.gradient_alignment;
  sizes_.query_bytes = width * sizes_.gradient_alignment;
  sizes_.run_bytes = static_cast<std::size_t>(num_token_runs(problem.tokens)) * sizes_.query_bytes;
}

void CpuOperandCheck::refuse(const std::string& argument, const std::string& problem) const {
  throw OperandError(operation_, argument, problem);
}

void CpuOperandCheck::count(const char* list, std::size_t size, int most) const {
  if (size == 0) {
    refuse(list, "is empty; at least one is needed");
  }
  if (size > static_cast<std::size_t>(most)) {
    refuse(list, "has " + std::to_string(size) + " elements; legal: 1.." + std::to_string(most));
  }
}

void CpuOperandCheck::workspace(const cpu::Execution& execution, std::size_t num_sources,
                                std::size_t num_queries) const {
  if (!cpu::is_supported(execution.isa)) {
    refuse("execution.isa", "is " + std::string(cpu::to_string(execution.isa)) +
                                ", which this processor lacks; nearest " +
                                std::string(cpu::to_string(cpu::best_isa())));
  }
  const auto threads = static_cast<std::size_t>(execution.threads == nullptr ? 1 : execution.threads->num_threads());
  const std::size_t needed =
      threads * scratch_bytes(problem_, static_cast<std::int64_t>(num_sources), static_cast<std::int64_t>(num_queries));
  if (execution.workspace.size() < needed) {
    refuse("execution.workspace", "has " + std::to_string(execution.workspace.size()) + " bytes; at least " +
                                      std::to_string(needed) + " are needed");
  }
  if (reinterpret_cast<std::uintptr_t>(execution.workspace.data()) % 64 != 0) {
    refuse("execution.workspace", "is not aligned to 64 bytes");
  }
}

std::string CpuOperandCheck::name(const Operand& operand) {
  if (operand.list == nullptr) {
    return operand.name;
  }
  std::string out = std::string(operand.list) + "[" + std::to_string(operand.index) + "]";
  return operand.name == nullptr ? out : out + "." + operand.name;
}

void CpuOperandCheck::single(const Operand& operand) const {
  if (operand.data == nullptr) {
    if (!operand.optional) {
      refuse(name(operand), "is null");
    }
    return;
  }
  if (reinterpret_cast<std::uintptr_t>(operand.data) % operand.alignment != 0) {
    refuse(name(operand), "is not aligned to its elements of " + std::to_string(operand.alignment) + " bytes");
  }
}

void CpuOperandCheck::pair(const Operand& output, const Operand& other) const {
  if (other.data == nullptr) {
    return;
  }
  const auto a = reinterpret_cast<std::uintptr_t>(output.data);
  const auto b = reinterpret_cast<std::uintptr_t>(other.data);
  if (a >= b + other.size_bytes || b >= a + output.size_bytes) {
    return;
  }
  const bool same = a == b && output.size_bytes == other.size_bytes;
  if (!same || output.alias_group == 0 || output.alias_group != other.alias_group) {
    refuse(name(output), "is written, but overlaps " + name(other));
  }
}

}  // namespace plumb::kernels_detail

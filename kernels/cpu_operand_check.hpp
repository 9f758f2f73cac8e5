// SPDX-License-Identifier: Apache-2.0
// cpu_operand_check.hpp (private): refuses operands of an operator before anything is written.
//
// An operator lists its operands by a function that calls back for each; nothing is stored, so nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "plumb/kernels/cpu_operators.hpp"

namespace plumb::kernels_detail {

struct Operand {
  const char* list = nullptr;  // name of the list it is an element of, if any
  std::int64_t index = 0;
  const char* name = nullptr;
  const void* data = nullptr;
  std::size_t size_bytes = 0;
  std::size_t alignment = 1;
  bool output = false;
  bool optional = false;
  int alias_group = 0;  // operands of one group other than 0 may be the very same memory
};

/// Sizes of the tensors of a problem.
struct OperandSizes {
  std::size_t value_bytes = 0;       // of [tokens, width] in storage
  std::size_t gradient_bytes = 0;    // of [tokens, width] in gradient_storage
  std::size_t statistics_bytes = 0;  // of [tokens]
  std::size_t query_bytes = 0;       // of [width]
  std::size_t run_bytes = 0;         // of [num_token_runs, width]
  std::size_t value_alignment = 0;
  std::size_t gradient_alignment = 0;
};

class CpuOperandCheck {
 public:
  /// Throws OperandError unless tokens, width, eps and storage are legal.
  CpuOperandCheck(const char* operation, const DepthProblem& problem);

  const OperandSizes& sizes() const { return sizes_; }

  /// One operand by what it holds; operand_list.hpp says more of it.
  Operand value(const char* name, const void* data) const {
    return {.name = name, .data = data, .size_bytes = sizes_.value_bytes, .alignment = sizes_.value_alignment};
  }
  Operand gradient(const char* name, const void* data) const {
    return {.name = name, .data = data, .size_bytes = sizes_.gradient_bytes, .alignment = sizes_.gradient_alignment};
  }
  Operand statistics(const char* name, const void* data) const {
    return {.name = name, .data = data, .size_bytes = sizes_.statistics_bytes, .alignment = sizes_.gradient_alignment};
  }
  Operand query(const char* name, const void* data) const {
    return {.name = name, .data = data, .size_bytes = sizes_.query_bytes, .alignment = sizes_.gradient_alignment};
  }
  Operand runs(const char* name, const void* data) const {
    return {.name = name, .data = data, .size_bytes = sizes_.run_bytes, .alignment = sizes_.gradient_alignment};
  }

  [[noreturn]] void refuse(const std::string& argument, const std::string& problem) const;
  void count(const char* list, std::size_t size, int most) const;
  /// Enough workspace for so many sources and queries on the execution's threads.
  void workspace(const cpu::Execution& execution, std::size_t num_sources, std::size_t num_queries) const;

  /// `visit(callback)` calls back for every operand. Null, misaligned and overlapping ones are refused.
  template <class Visit>
  void operands(const Visit& visit) const {
    visit([&](const Operand& each) { single(each); });
    std::int64_t output_number = 0;
    visit([&](const Operand& output) {
      const std::int64_t own = output_number++;
      if (!output.output || output.data == nullptr) {
        return;
      }
      std::int64_t other_number = 0;
      visit([&](const Operand& other) {
        if (other_number++ != own) {
          pair(output, other);
        }
      });
    });
  }

 private:
  static std::string name(const Operand& operand);
  void single(const Operand& operand) const;
  void pair(const Operand& output, const Operand& other) const;

  const char* operation_;
  DepthProblem problem_;
  OperandSizes sizes_;
};

}  // namespace plumb::kernels_detail

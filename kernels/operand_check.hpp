// SPDX-License-Identifier: Apache-2.0
// operand_check.hpp (private): refuses operands that do not fit the chunk, before anything is computed.
#pragma once

#include <string>

#include "chunk_run.hpp"
#include "plumb/kernels/block_machine.hpp"

namespace plumb::kernels_detail {

class OperandCheck {
 public:
  /// `call` names the caller in messages.
  OperandCheck(const ChunkContext& context, const char* call) : context_(context), call_(call) {}

  void forward(const MachineForward& args) const;
  void backward(const MachineBackward& args) const;

  /// Throws std::invalid_argument: "block machine, sublayers 4..7, forward: <problem>".
  [[noreturn]] void refuse(const std::string& problem) const;

 private:
  void count(const char* what, std::size_t got, int due) const;
  void tensor(const char* what, const void* pointer, bool due) const;
  void element(const char* what, std::size_t i, const void* pointer) const;

  const ChunkContext& context_;
  const char* call_;
};

}  // namespace plumb::kernels_detail

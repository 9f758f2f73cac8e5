// SPDX-License-Identifier: Apache-2.0
// operand_error.hpp: what an operator throws when its operands cannot be right. Nothing has been written then.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace plumb {

class OperandError : public std::invalid_argument {
 public:
  /// what(): "<operation>: <argument> <problem>".
  OperandError(const std::string& operation, std::string argument, const std::string& problem)
      : std::invalid_argument(operation + ": " + argument + " " + problem), argument_(std::move(argument)) {}

  /// The operand at fault as its struct names it, for example "sources[2].value".
  const std::string& argument() const { return argument_; }

 private:
  std::string argument_;
};

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// command.hpp: what every benchmark does with its arguments and at its end.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace plumb::bench {

// Arguments that cannot be; what() is the reason, on one line.
class UsageError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Says why on stderr, and where there is more; returns the exit status 2. `command`: "plumb bench sim".
int refuse(std::string_view command, std::string_view why);

// One flag, which may take the argument after it.
class Flag {
 public:
  Flag(const std::vector<std::string>& arguments, std::size_t& at)
      : arguments_(arguments), at_(at), name_(arguments[at]) {}

  const std::string& name() const { return name_; }
  bool is(std::string_view name) const { return name_ == name; }
  // Throws UsageError where nothing follows.
  const std::string& value();
  // Throws UsageError where it is not a whole number from 1 to `most`.
  std::int64_t number(std::int64_t most);
  // To be thrown. "--dtype is 'fp8'; legal: fp32, bf16, fp16".
  UsageError not_legal(const std::string& value, std::string_view legal) const;

 private:
  const std::vector<std::string>& arguments_;
  std::size_t& at_;
  const std::string& name_;
};

// Gives every flag to `take`, which takes its value too and returns false where it does not know it. The exit status
// where that ends the program: after --help, or where `take` throws a UsageError or an InputError.
std::optional<int> read_flags(const std::vector<std::string>& arguments, std::string_view command,
                              const char* usage_text, const std::function<bool(Flag&)>& take);

// Writes out what has been printed; the exit status, 3 with a line on stderr where it could not be written.
int end_output();

}  // namespace plumb::bench

// SPDX-License-Identifier: Apache-2.0
//
// answer.hpp (tests): what plumb answers with --json.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "cli/support.hpp"

namespace plumb::test {

// The run must succeed and say nothing on stderr; stdout is exactly one JSON value.
inline nlohmann::json answer(const std::string& arguments) {
  return nlohmann::json::parse(fine(arguments + " --json"));
}

}  // namespace plumb::test

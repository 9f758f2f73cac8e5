// SPDX-License-Identifier: Apache-2.0
//
// encode_names.hpp (private): the words of the Program JSON, shared by its writer and its reader.
#pragma once

#include <array>
#include <string_view>

namespace plumb::json_names {

constexpr std::string_view format = "plumbline-program";
constexpr int version = 1;

// In the order of the enumerators.
constexpr std::array<std::string_view, 8> roles = {"source",           "partial_in",  "closed",      "partial_out",
                                                   "grad_partial_out", "grad_closed", "grad_source", "grad_partial_in"};
constexpr std::array<std::string_view, 4> comm_kinds = {"send", "receive", "add", "zero"};
constexpr std::array<std::string_view, 2> lanes = {"urgent", "bulk"};
constexpr std::array<std::string_view, 2> directions = {"forward", "backward"};
constexpr std::array<std::string_view, 5> policies = {"standard", "naive", "relay", "cached", "direct"};
constexpr std::array<std::string_view, 2> placements = {"loop", "vee"};
constexpr std::array<std::string_view, 3> residuals = {"standard", "attnres-block", "attnres-full"};

// Waits and slots are one letter and a number: "c7" = compute step 7, "m7" = communication step 7, "v3" = value slot 3,
// "g3" = gradient slot 3.
constexpr char compute_wait = 'c';
constexpr char comm_wait = 'm';
constexpr char value_slot = 'v';
constexpr char gradient_slot = 'g';

}  // namespace plumb::json_names

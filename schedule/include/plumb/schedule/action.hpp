// SPDX-License-Identifier: Apache-2.0
//
// action.hpp: one thing a rank computes: an operation of one chunk on one microbatch.
//
// F = forward, B = full backward, I = backward for inputs only, W = backward for weights only (B = I then W). An action
// may also be an overlapped pair of two such computations (a forward and a backward sharing the device). Its text is
// the token of torch.distributed.pipelining's schedule CSV: "3F12", "0B7", "(0F7;7B3)OVERLAP_F_B". Communication is not
// an action here: it is derived by lowering.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plumb/schedule/csv_dialect.hpp"
#include "plumb/schedule/ids.hpp"

namespace plumb {

enum class Op : std::uint8_t { forward, backward, backward_input, backward_weight };

char letter(Op op);  // F, B, I, W

struct Compute {
  Op op = Op::forward;
  ChunkId chunk;
  Microbatch microbatch;
  friend constexpr auto operator<=>(const Compute&, const Compute&) = default;
};

struct Action {
  Compute first;
  std::optional<Compute> second;  // present in an overlapped pair
  friend bool operator==(const Action&, const Action&) = default;
};

std::string to_string(const Compute& compute);  // "3F12"
std::string to_string(const Action& action);

// The same in another dialect: legacy has B for an I and BW for a B.
std::string to_string(const Compute& compute, CsvDialect dialect);

// `token` as the dialect spells it; what is no computation stays as it is.
std::string respelled(std::string_view token, CsvDialect dialect);

// Strict: the whole token must match, digits are ASCII without leading zeros, a microbatch is required. Throws
// InputError with the token and what was expected. Communication tokens (SEND_F and the like) are refused by name.
Action parse_action(std::string_view token, CsvDialect dialect = CsvDialect::current);

}  // namespace plumb

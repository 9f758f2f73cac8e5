// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/action.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "quote.hpp"

namespace plumb {
namespace {

constexpr std::string_view overlap_type = "OVERLAP_F_B";
// What a Layout can hold at all; the exact range is the schedule's to check.
constexpr std::int32_t max_chunk = 65535;
constexpr std::int32_t max_microbatch = (1 << 20) - 1;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::optional<Op> op_of(std::string_view type) {
  if (type == "F") return Op::forward;
  if (type == "B") return Op::backward;
  if (type == "I") return Op::backward_input;
  if (type == "W") return Op::backward_weight;
  return std::nullopt;
}

// Types that other tools write, so that a refusal can say what they are instead of "junk".
std::string_view why_not_a_computation(std::string_view type) {
  constexpr std::array<std::string_view, 11> communication = {"SEND_F",      "RECV_F",      "SEND_B",  "RECV_B",
                                                              "WAIT_SEND_F", "WAIT_SEND_B", "UNSHARD", "RESHARD",
                                                              "REDUCE_GRAD", "SEND",        "RECV"};
  if (std::find(communication.begin(), communication.end(), type) != communication.end()) {
    return "is not a computation; a compute-only schedule holds F, B, I and W, the communication is derived from it";
  }
  if (type == "BW") return "is the old spelling of a full backward, write B (and I for an old B)";
  if (type == overlap_type) return "needs its two computations in front: (0F7;7B3)OVERLAP_F_B";
  return {};
}

// Reads one token or one half of a pair; `token` is the whole cell, for the message.
class Reader {
 public:
  Reader(std::string_view token, std::string_view text) : token_(token), rest_(text) {}

  Compute compute() {
    Compute compute;
    compute.chunk = ChunkId(number("a chunk number", max_chunk));
    const auto type_end = std::find_if_not(rest_.begin(), rest_.end(), [](char c) {
      return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
    });
    const std::string_view type = rest_.substr(0, static_cast<std::size_t>(type_end - rest_.begin()));
    const std::optional<Op> op = op_of(type);
    if (!op) {
      const std::string_view why = why_not_a_computation(type);
      if (!why.empty()) fail(fmt::format("{} {}", type, why));
      fail(type.empty() ? "one of F, B, I, W must follow the chunk number"
                        : fmt::format("unknown type {}, expected F, B, I or W", quoted(type)));
    }
    compute.op = *op;
    rest_.remove_prefix(type.size());
    compute.microbatch = Microbatch(number("a microbatch number", max_microbatch));
    if (!rest_.empty()) fail(fmt::format("{} stands after the microbatch", quoted(rest_)));
    return compute;
  }

  [[noreturn]] void fail(std::string_view why) const {
    throw InputError(
        fmt::format("token {}: {} (expected a form like 3F12 or (0F7;7B3)OVERLAP_F_B)", quoted(token_), why));
  }

 private:
  std::int32_t number(std::string_view what, std::int32_t max) {
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_digit);
    const std::string_view digits = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    if (digits.empty()) fail(fmt::format("{} is missing{}", what, rest_.empty() ? "" : " before " + quoted(rest_)));
    if (digits.size() > 1 && digits.front() == '0') fail(fmt::format("{} has leading zeros", what));
    std::int64_t value = 0;
    for (const char c : digits) {
      value = value * 10 + (c - '0');
      if (value > max) fail(fmt::format("{} is above {}", what, max));
    }
    rest_.remove_prefix(digits.size());
    return static_cast<std::int32_t>(value);
  }

  std::string_view token_;
  std::string_view rest_;
};

}  // namespace

char letter(Op op) {
  switch (op) {
    case Op::forward:
      return 'F';
    case Op::backward:
      return 'B';
    case Op::backward_input:
      return 'I';
    case Op::backward_weight:
      return 'W';
  }
  return '?';
}

std::string to_string(const Compute& compute) {
  return fmt::format("{}{}{}", compute.chunk.value, letter(compute.op), compute.microbatch.value);
}

std::string to_string(const Action& action) {
  if (!action.second) return to_string(action.first);
  return fmt::format("({};{}){}", to_string(action.first), to_string(*action.second), overlap_type);
}

Action parse_action(std::string_view token) {
  const Reader whole(token, token);
  if (token.empty() || token.front() != '(') return {Reader(token, token).compute(), std::nullopt};

  const std::size_t close = token.find(')');
  if (close == std::string_view::npos) whole.fail("the closing ) is missing");
  const std::string_view type = token.substr(close + 1);
  if (type != overlap_type) {
    whole.fail(fmt::format("{} must follow the ) at once, not {}", overlap_type, quoted(type)));
  }
  const std::string_view inside = token.substr(1, close - 1);
  const std::size_t middle = inside.find(';');
  if (middle == std::string_view::npos || inside.find(';', middle + 1) != std::string_view::npos) {
    whole.fail("an overlapped pair holds exactly two computations, separated by one ;");
  }
  const Action action{Reader(token, inside.substr(0, middle)).compute(),
                      Reader(token, inside.substr(middle + 1)).compute()};
  const bool backward = action.second->op == Op::backward || action.second->op == Op::backward_input;
  if (action.first.op != Op::forward || !backward) whole.fail("an overlapped pair is an F and then a B or I");
  return action;
}

}  // namespace plumb

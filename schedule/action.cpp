// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/action.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "quote.hpp"
#include "token_reader.hpp"

namespace plumb {
namespace {

constexpr std::string_view overlap_type = "OVERLAP_F_B";
constexpr std::string_view form = "3F12 or (0F7;7B3)OVERLAP_F_B";
constexpr std::string_view legacy_form = "3F12, 0B7 or 0BW7";

std::optional<Op> op_of(std::string_view type, CsvDialect dialect) {
  const bool legacy = dialect == CsvDialect::legacy;
  if (type == "F") return Op::forward;
  if (type == "B") return legacy ? Op::backward_input : Op::backward;
  if (type == "W") return Op::backward_weight;
  if (type == "I" && !legacy) return Op::backward_input;
  if (type == "BW" && legacy) return Op::backward;
  return std::nullopt;
}

// Types that other tools write, so that a refusal can say what they are instead of "junk".
std::string_view why_not_a_computation(std::string_view type, CsvDialect dialect) {
  constexpr std::array<std::string_view, 11> communication = {"SEND_F",      "RECV_F",      "SEND_B",  "RECV_B",
                                                              "WAIT_SEND_F", "WAIT_SEND_B", "UNSHARD", "RESHARD",
                                                              "REDUCE_GRAD", "SEND",        "RECV"};
  if (std::find(communication.begin(), communication.end(), type) != communication.end()) {
    return "is not a computation; a compute-only schedule holds F, B, I and W, the communication is derived from it";
  }
  if (type == "BW")
    return "is the old spelling of a full backward: read the file as legacy, or write B (and I for an old B)";
  if (type == "I" && dialect == CsvDialect::legacy)
    return "does not exist in the old dialect, where B is the input gradient";
  if (type == overlap_type) return "needs its two computations in front: (0F7;7B3)OVERLAP_F_B";
  return {};
}

Compute read_compute(TokenReader reader, CsvDialect dialect) {
  Compute compute;
  compute.chunk = reader.chunk();
  const std::string_view type = reader.type();
  const std::optional<Op> op = op_of(type, dialect);
  if (!op) {
    const std::string_view why = why_not_a_computation(type, dialect);
    if (!why.empty()) reader.fail(fmt::format("{} {}", type, why));
    const std::string_view legal = dialect == CsvDialect::legacy ? "F, B, W, BW" : "F, B, I, W";
    reader.fail(type.empty() ? fmt::format("one of {} must follow the chunk number", legal)
                             : fmt::format("unknown type {}, expected one of {}", quoted(type), legal));
  }
  compute.op = *op;
  compute.microbatch = reader.microbatch();
  reader.end("microbatch");
  return compute;
}

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

std::string to_string(const Compute& compute, CsvDialect dialect) {
  if (dialect == CsvDialect::current || compute.op == Op::forward || compute.op == Op::backward_weight) {
    return to_string(compute);
  }
  return fmt::format("{}{}{}", compute.chunk.value, compute.op == Op::backward ? "BW" : "B", compute.microbatch.value);
}

std::string respelled(std::string_view token, CsvDialect dialect) {
  if (dialect == CsvDialect::current) return std::string(token);
  try {
    const Action action = parse_action(token);
    return action.second ? std::string(token) : to_string(action.first, dialect);
  } catch (const InputError&) {
    return std::string(token);
  }
}

std::string to_string(const Action& action) {
  if (!action.second) return to_string(action.first);
  return fmt::format("({};{}){}", to_string(action.first), to_string(*action.second), overlap_type);
}

Action parse_action(std::string_view token, CsvDialect dialect) {
  const TokenReader whole(token, dialect == CsvDialect::legacy ? legacy_form : form, token);
  if (token.empty() || token.front() != '(') return {read_compute(whole, dialect), std::nullopt};
  if (dialect == CsvDialect::legacy) whole.fail("overlapped pairs do not exist in the old dialect");

  const std::size_t close = token.find(')');
  if (close == std::string_view::npos) whole.fail("the closing ) is missing");
  const std::string_view type = token.substr(close + 1);
  if (type != overlap_type) {
    whole.fail(fmt::format("{} must follow the ) at once, not {}", overlap_type, quoted(type)));
  }
  const std::string_view inside = token.substr(1, close - 1);
  if (inside.find_first_of(" \t") != std::string_view::npos) {
    whole.fail("blanks may stand around a cell, but not inside a pair");
  }
  const std::size_t middle = inside.find(';');
  if (middle == std::string_view::npos || inside.find(';', middle + 1) != std::string_view::npos) {
    whole.fail("an overlapped pair holds exactly two computations, separated by one ;");
  }
  const Action action{read_compute({token, form, inside.substr(0, middle)}, dialect),
                      read_compute({token, form, inside.substr(middle + 1)}, dialect)};
  const bool backward = action.second->op == Op::backward || action.second->op == Op::backward_input;
  if (action.first.op != Op::forward || !backward) whole.fail("an overlapped pair is an F and then a B or I");
  return action;
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/comms_csv.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "csv_rows.hpp"
#include "token_reader.hpp"

namespace plumb {

// Where the templates of csv_rows.hpp find it: CommsItem belongs to this namespace by its alternatives.
template <class Visit>
void for_each_compute(const CommsItem& item, Visit&& visit) {
  if (const Action* action = std::get_if<Action>(&item)) for_each_compute(*action, visit);
}

namespace {

constexpr std::string_view comms_form = "3F12, (0F7;7B3)OVERLAP_F_B, 0SEND_F1 or 3UNSHARD";

std::optional<CommOp> comm_op_of(std::string_view type) {
  const auto found =
      std::find_if(all_comm_ops.begin(), all_comm_ops.end(), [&](CommOp op) { return to_string(op) == type; });
  if (found == all_comm_ops.end()) return std::nullopt;
  return *found;
}

// What is nearly a communication, so that the refusal can say what is meant.
std::string_view why_no_communication(std::string_view type) {
  if (type == "SEND" || type == "RECV") return "needs its direction: SEND_F, RECV_F, SEND_B or RECV_B";
  if (type.starts_with("WAIT_SEND_")) return "is no action of the format: a send is awaited where its data is reused";
  return {};
}

CommAction read_comm(TokenReader reader, CommOp op) {
  CommAction action{op, reader.chunk(), {}};
  const std::string_view type = reader.type();
  if (moves_data(op)) {
    action.microbatch = reader.microbatch();
    reader.end("microbatch");
  } else if (!reader.at_end()) {
    reader.fail(fmt::format("nothing may stand after {}, which has no microbatch", type));
  }
  return action;
}

void require_within(const CsvRows<CommsItem>& rows, const Layout& layout, std::string_view name) {
  for (std::size_t row = 0; row < rows.items.size(); ++row) {
    for (std::size_t i = 0; i < rows.items[row].size(); ++i) {
      const CommAction* comm = std::get_if<CommAction>(&rows.items[row][i]);
      if (comm == nullptr) continue;
      const std::string why = beyond(layout, comm->chunk, comm->microbatch);
      if (why.empty()) continue;
      throw InputError(
          fmt::format("{}: {}: {}: {}", name, place_of({row, rows.columns[row][i], {}}), to_string(*comm), why));
    }
  }
}

}  // namespace

std::string_view to_string(CommOp op) {
  constexpr std::array<std::string_view, 7> names = {"SEND_F",  "RECV_F",  "SEND_B",     "RECV_B",
                                                     "UNSHARD", "RESHARD", "REDUCE_GRAD"};
  return names[static_cast<std::size_t>(op)];
}

bool moves_data(CommOp op) { return op < CommOp::unshard; }

std::string to_string(const CommAction& action) {
  if (!moves_data(action.op)) return fmt::format("{}{}", action.chunk.value, to_string(action.op));
  return fmt::format("{}{}{}", action.chunk.value, to_string(action.op), action.microbatch.value);
}

std::string to_string(const CommsItem& item) {
  return std::visit([](const auto& action) { return to_string(action); }, item);
}

Schedule computations_of(const CommsSchedule& schedule) {
  Schedule computations{schedule.name, schedule.layout, {}, schedule.forward_only};
  for (const std::vector<CommsItem>& items : schedule.ranks) {
    std::vector<Action>& actions = computations.ranks.emplace_back();
    for (const CommsItem& item : items) {
      if (const Action* action = std::get_if<Action>(&item)) actions.push_back(*action);
    }
  }
  return computations;
}

std::string write_comms_csv(const CommsSchedule& schedule) {
  std::string text;
  for (const std::vector<CommsItem>& items : schedule.ranks) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i != 0) text += ',';
      text += to_string(items[i]);
    }
    if (items.empty()) text += "\"\"";
    text += "\r\n";
  }
  return text;
}

CommsItem parse_comms_item(std::string_view token, CsvDialect dialect) {
  const TokenReader whole(token, comms_form, token);
  if (token.empty() || token.front() < '0' || token.front() > '9') return parse_action(token, dialect);
  TokenReader reader = whole;
  (void)reader.chunk();
  const std::string_view type = reader.type();
  if (const std::optional<CommOp> op = comm_op_of(type)) return read_comm(whole, *op);
  if (const std::string_view why = why_no_communication(type); !why.empty()) {
    whole.fail(fmt::format("{} {}", type, why));
  }
  return parse_action(token, dialect);
}

CommsSchedule read_comms_csv(std::string_view text, std::string_view name, std::optional<Layout> layout,
                             CsvDialect dialect, CsvFit fit) {
  auto rows = read_csv_rows<CommsItem>(text, name, false,
                                       [&](std::string_view token) { return parse_comms_item(token, dialect); });
  rows.dialect = dialect;
  const Layout fitting = layout_of(rows, name, layout, fit);
  if (fit == CsvFit::exact) require_within(rows, fitting, name);
  const bool forward_only = holds_only_forwards(rows);
  return CommsSchedule{std::string(name), fitting, std::move(rows.items), forward_only};
}

bool spells_communication(std::string_view text) {
  constexpr std::array<std::string_view, 4> words = {"SEND_", "RECV_", "SHARD", "REDUCE_GRAD"};
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

}  // namespace plumb

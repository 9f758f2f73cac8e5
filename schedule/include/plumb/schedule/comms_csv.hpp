// SPDX-License-Identifier: Apache-2.0
//
// comms_csv.hpp: torch.distributed.pipelining's compute+comms schedule CSV, out and in.
//
// Per rank, computations and communications in the order in which the rank issues them. Such a schedule may come from a
// person: reading proves its spelling only, check_comms (plumb/cache/comms_check.hpp) proves the rest. The dialect has
// no bubbles: an empty cell is refused, a row without any cell is a rank that does nothing. Reading is strict where
// torch's reader guesses: every cell that is not exactly a token is an InputError naming row, column and token. Plain
// data.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "plumb/schedule/action.hpp"
#include "plumb/schedule/comm_action.hpp"
#include "plumb/schedule/csv_dialect.hpp"
#include "plumb/schedule/layout.hpp"
#include "plumb/schedule/schedule.hpp"

namespace plumb {

using CommsItem = std::variant<Action, CommAction>;

std::string to_string(const CommsItem& item);

struct CommsSchedule {
  std::string name;  // for people only
  Layout layout;
  std::vector<std::vector<CommsItem>> ranks;  // [rank][position]; the position is also the column in the file
  bool forward_only = false;
};

// The computations alone, each rank's in order.
Schedule computations_of(const CommsSchedule& schedule);

// Byte for byte what torch writes: CRLF, no blanks; a rank that does nothing is "" (one empty cell).
std::string write_comms_csv(const CommsSchedule& schedule);

// One token of either kind. Strict; throws InputError with the token and what was expected.
CommsItem parse_comms_item(std::string_view token, CsvDialect dialect = CsvDialect::current);

// `layout`: what the file must fit; when absent it is inferred from the computations as read_compute_csv does. A number
// beyond the layout is refused here, anything else that is wrong is check_comms's to say. Reads at most 256 MiB and
// 2^24 cells. Throws InputError.
CommsSchedule read_comms_csv(std::string_view text, std::string_view name, std::optional<Layout> layout = std::nullopt,
                             CsvDialect dialect = CsvDialect::current, CsvFit fit = CsvFit::exact);

// True if the text spells any communication, so that it must be read as compute+comms. A quick look, not a parse.
bool spells_communication(std::string_view text);

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// compute_csv.hpp: torch.distributed.pipelining's compute-only schedule CSV, out and in.
//
// One row per rank, one cell per action, an empty cell is a bubble. Writing gives CRLF line ends and no blanks. Reading
// is strict where torch's reader guesses (junk after a token, missing microbatch): every such cell is an InputError
// naming row, column and token. Rows become ranks; the number of chunks and microbatches and the placement are inferred
// unless given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plumb/schedule/schedule.hpp"

namespace plumb {

// A rank that does nothing is written "" (one empty cell).
std::string write_compute_csv(const Schedule& schedule);

// [rank][position of the action]: its column in the file, where blank cells count.
using CsvColumns = std::vector<std::vector<std::uint32_t>>;

// `layout`: what the file must fit; when absent P = rows, V = chunks / rows, M = largest microbatch + 1, placement =
// the one of loop and vee that agrees with the rows. Blank cells are dropped; a row without actions is left for
// check_schedule to tell. Reads at most 256 MiB and 2^24 actions. Throws InputError.
Schedule read_compute_csv(std::string_view text, std::string_view name, std::optional<Layout> layout = std::nullopt,
                          CsvDialect dialect = CsvDialect::current, CsvColumns* columns = nullptr,
                          CsvFit fit = CsvFit::exact);

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// csv_dialect.hpp: what the letters in torch's schedule CSV mean.
//
// `current`: F forward, B full backward, I input gradient, W weight gradient, pairs (..;..)OVERLAP_F_B. `legacy`,
// written before about November 2024: B is the input gradient, W the weight gradient and BW the full backward; no I, no
// pairs. A legacy file cannot be told from a current one by its text, so nothing guesses: the caller says which it is.
#pragma once

#include <cstdint>

namespace plumb {

enum class CsvDialect : std::uint8_t { current, legacy };

// Rows that agree with no placement are refused (`exact`), or read on the placement that fewer of them break
// (`nearest`), for check_schedule and check_comms to name every one; numbers of communications are then theirs, too.
enum class CsvFit : std::uint8_t { exact, nearest };

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// manifest.hpp: what the two halves of the checkpoint code share: the list of part files. Private to them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train_lm/checkpoint.hpp"

namespace plumb::lm {

inline constexpr std::string_view kPartSuffix = ".part";

// The parts of the folder's current checkpoint. Throws InputError like read_checkpoint.
std::vector<PartFile> read_parts(const std::string& folder);

}  // namespace plumb::lm

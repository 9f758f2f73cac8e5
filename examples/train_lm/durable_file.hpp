// SPDX-License-Identifier: Apache-2.0
//
// durable_file.hpp: writes a file so that a crash leaves the old content or the new one, never a mixture.
//
// The bytes go to a temporary neighbour, are synced, and take the final name by rename; then the folder is synced. It
// is NOT a lock: two writers of one name are two whole files, the last wins. Throws cli::EnvironmentError naming the
// path and the cause.
#pragma once

#include <string>
#include <string_view>

namespace plumb::lm {

void write_durably(const std::string& path, std::string_view bytes);

}  // namespace plumb::lm

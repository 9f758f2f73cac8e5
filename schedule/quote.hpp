// SPDX-License-Identifier: Apache-2.0
//
// quote.hpp: foreign text, made fit for a one-line message.
#pragma once

#include <string>
#include <string_view>

namespace plumb {

// `text` between double quotes; anything but printable ASCII becomes \xNN and long text is cut after 40 bytes, so that
// a message stays one readable line whatever the file held.
std::string quoted(std::string_view text);

}  // namespace plumb

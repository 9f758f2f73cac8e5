// SPDX-License-Identifier: Apache-2.0
//
// did_you_mean.hpp (private): the nearest known word, for refusals.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace plumb {

// ", did you mean 'hbm_GBps'?" or nothing, where no known word is near: fewest letters to change, without regard to
// case; one that begins with the other is near, so that a forgotten unit is found.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// faults.hpp (tests): what verify_program says, as text, and the claim that it finds a kind of damage.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cache/support/programs.hpp"
#include "plumb/cache/deadlock.hpp"

namespace plumb::test {

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// One line per fault.
std::string faults_of(const Program& program);

// Damages `times` small random programs; each must then have a fault with `part` in its text. `damage` returns false if
// the program has no place for it.
void must_be_found(std::string_view part, int times, const std::function<bool(Program&, Dice&)>& damage);

}  // namespace plumb::test

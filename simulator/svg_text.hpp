// SPDX-License-Identifier: Apache-2.0
//
// svg_text.hpp (private): the small part of SVG that a drawing of a timeline needs, as text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "plumb/simulator/sim_time.hpp"

namespace plumb {

// The length of the UTF-8 sequence beyond ASCII at `at`, 0 if there is none. REQUIRES at < text.size().
std::size_t utf8_length(std::string_view text, std::size_t at);

// Fit for text and attributes: markup escaped, what XML 1.0 forbids and bytes beyond ASCII that are not UTF-8 become ?.
std::string xml_escaped(std::string_view text);

// At most two decimals, no trailing zeros: pixels.
std::string px(double value);

// "24 ms": in s, ms or us, whichever suits `scale`, with all digits before the point and at least `significant` in all.
std::string time_text(SimTime time, SimTime scale, int significant = 4);

// About as wide as a wide proportional sans serif sets it.
double text_width(std::string_view text, double font_px);

// The fill of an operation ('F', 'B', 'I', 'W') in one of `num_shades` lightnesses, "#rrggbb". The four hues stay apart
// for colour-blind readers (Okabe and Ito's), dark text is readable on all of them.
std::string shade_of(char operation, int shade, int num_shades);

}  // namespace plumb

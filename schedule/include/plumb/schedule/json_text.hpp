// SPDX-License-Identifier: Apache-2.0
//
// json_text.hpp: what a foreign JSON text must be before a parser builds a document from it.
//
// Parsers accept two things that nobody here writes and that do harm: brackets nested by the million, which take
// gigabytes, and a key that stands twice in an object, of which one value is dropped without a word. This looks at the
// text only, allocates in proportion to the keys of open objects, and is linear but for sorting those. It is NOT a
// parser: whether the text is JSON is the parser's to say.
#pragma once

#include <cstddef>
#include <string_view>

namespace plumb {

inline constexpr std::size_t max_json_depth = 64;  // the deepest format here has 6

// Throws InputError, one line beginning with `name`: where arrays and objects are nested deeper than max_json_depth, or
// where an object names a key twice (as spelled: an escaped letter is another spelling). Never throws for anything
// else.
void require_plain_json(std::string_view text, std::string_view name);

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/invariant.hpp"

#include <cstdio>
#include <cstdlib>

namespace plumb {

void broken_invariant(std::string_view text) {
  // No allocation and no exception here: whatever is broken may have broken those too.
  std::fputs("plumb: broken invariant: ", stderr);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fputc('\n', stderr);
  std::fflush(stderr);
  std::abort();
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// sanitized.hpp (tests): what a sanitizer makes many times slower is done fewer times there.
#pragma once

#include "support/catch.hpp"

namespace plumb::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif

// So many; says so where it is not all of them.
inline int rounds(int all, int sanitized) {
  if (!is_sanitized) return all;
  WARN("with a sanitizer: " << sanitized << " rounds instead of " << all);
  return sanitized;
}

}  // namespace plumb::test

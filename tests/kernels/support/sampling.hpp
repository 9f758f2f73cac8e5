// SPDX-License-Identifier: Apache-2.0
// sampling.hpp: long lists of cases in full, or every k-th of them where a sanitizer makes each many times slower.
#pragma once

#include <iostream>

namespace plumb::testing {

class Sampling {
 public:
  /// `stride` cases are left out for each one taken under a sanitizer; a prime spreads them over nested loops.
  explicit Sampling(int stride) : stride_(kSlow ? 8 * stride + 1 : 1) {
    if (kSlow) {
      std::cout << "sanitizer build: every " << stride_ << "th case of a list is run, because each is slow here\n";
    }
  }

  bool takes(int number) const { return number % stride_ == 0; }

 private:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr bool kSlow = true;
#else
  static constexpr bool kSlow = false;
#endif
  int stride_;
};

}  // namespace plumb::testing

// SPDX-License-Identifier: Apache-2.0
// sampling.hpp: long lists of cases in full, or every k-th of them where a sanitizer makes each many times slower.
#pragma once

#include <iostream>

namespace plumb::testing {

class Sampling {
 public:
  /// `stride` cases are left out for each one taken under a sanitizer; a prime spreads them over nested loops.
  explicit Sampling(int stride) : stride_(kSlow ? kThinning * stride + 1 : 1) {
    if (kSlow) {
      std::cout << "sanitizer build: every " << stride_ << "th case of a list is run, because each is slow here\n";
    }
  }

  bool takes(int number) const { return number % stride_ == 0; }

 private:
#if defined(__SANITIZE_THREAD__)
  static constexpr int kThinning = 24;  // one thread, mostly: little to see
#elif defined(__SANITIZE_ADDRESS__)
  static constexpr int kThinning = 8;
#else
  static constexpr int kThinning = 0;
#endif
  static constexpr bool kSlow = kThinning > 0;
  int stride_;
};

}  // namespace plumb::testing

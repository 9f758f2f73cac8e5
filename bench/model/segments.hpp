// SPDX-License-Identifier: Apache-2.0
//
// segments.hpp: a repeated piece of work cut at the same places every time; of each segment the fastest repetition
// counts, so that what interrupts one segment costs that one only.
//
// Processor time of the calling thread. Threads: one.
#pragma once

#include <cstddef>
#include <ctime>
#include <limits>
#include <vector>

namespace plumb::bench {

class Segments {
 public:
  void begin() {
    at_ = 0;
    last_ = now();
  }
  // Ends a segment and begins the next.
  void cut() {
    const double time = now();
    if (at_ == fastest_.size()) {
      fastest_.push_back(std::numeric_limits<double>::infinity());
    }
    if (time - last_ < fastest_[at_]) {
      fastest_[at_] = time - last_;
    }
    ++at_;
    last_ = now();
  }

  // Sums over every second segment, the first or the second of each pair, in seconds.
  double even() const { return sum(0); }
  double odd() const { return sum(1); }

 private:
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  double sum(std::size_t first) const {
    double seconds = 0;
    for (std::size_t i = first; i < fastest_.size(); i += 2) {
      seconds += fastest_[i];
    }
    return seconds;
  }

  std::vector<double> fastest_;
  std::size_t at_ = 0;
  double last_ = 0;
};

}  // namespace plumb::bench

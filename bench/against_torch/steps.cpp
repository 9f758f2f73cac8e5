// SPDX-License-Identifier: Apache-2.0
#include "steps.hpp"

#include <algorithm>
#include <ctime>
#include <numeric>

namespace plumb::bench {
namespace {

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

void Steps::start() {
  next_ = 0;
  skip();
}

void Steps::lap() {
  const double seconds = processor_seconds() - begin_;
  if (next_ == fastest_.size()) fastest_.push_back(seconds);
  fastest_[next_] = std::min(fastest_[next_], seconds);
  ++next_;
  skip();
}

void Steps::skip() { begin_ = processor_seconds(); }

double Steps::seconds() const { return std::accumulate(fastest_.begin(), fastest_.end(), 0.0); }

}  // namespace plumb::bench

// SPDX-License-Identifier: Apache-2.0
//
// steps.hpp: a pass timed step by step, in processor time of the whole process, whatever threads a library starts. Of
// each step the fastest repetition counts, so that other work on the machine disturbs little.
#pragma once

#include <cstddef>
#include <vector>

namespace plumb::bench {

class Steps {
 public:
  // A repetition begins: the same steps in the same order.
  void start();
  // A step ends and the next begins.
  void lap();
  // What ran since the last step ended is nobody's.
  void skip();

  double seconds() const;

 private:
  std::vector<double> fastest_;
  std::size_t next_ = 0;
  double begin_ = 0;
};

}  // namespace plumb::bench

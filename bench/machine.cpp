// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <fstream>
#include <thread>

namespace plumb::bench {

Machine this_machine() {
  Machine machine;
  machine.num_threads = std::thread::hardware_concurrency();
#if defined(__clang__)
  machine.compiler = "clang " __clang_version__;
#elif defined(__GNUC__)
  machine.compiler = "gcc " __VERSION__;
#endif
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t start = line.find_first_not_of(": \t", line.find(':'));
    if (start != std::string::npos) machine.processor = line.substr(start);
    break;
  }
  return machine;
}

}  // namespace plumb::bench

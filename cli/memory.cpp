// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "exit.hpp"
#include "output.hpp"
#include "plumb/cache/volume.hpp"

namespace plumb::cli {

namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();

// The number that opens the file, or nothing known.
double number_in(const char* path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? value : unlimited;
}

double free_in_system() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  double kib = 0;
  for (std::string line; std::getline(file, line);) {
    if (std::istringstream(line) >> key >> kib && key == "MemAvailable:") return kib * 1024;
  }
  return unlimited;
}

// Version 2 of control groups, then version 1; within a container the files of its own group stand at the root.
double free_in_control_group() {
  for (const auto& [limit, used] :
       {std::pair{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        std::pair{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}}) {
    const double most = number_in(limit);
    const double now = number_in(used);
    if (most < unlimited && now < unlimited) return std::max(0.0, most - now);
  }
  return unlimited;
}

double free_in_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return unlimited;
  const double pages = number_in("/proc/self/statm");
  const double used = pages < unlimited ? pages * static_cast<double>(sysconf(_SC_PAGESIZE)) : 0;
  return std::max(0.0, static_cast<double>(limit.rlim_cur) - used);
}

}  // namespace

double bytes_needed(Product product, const Layout& layout, const DepthMap& depth, Policy policy, bool split) {
  const double microbatches = layout.microbatches();
  const double actions = (split ? 3.0 : 2.0) * layout.num_chunks() * microbatches;
  if (product == Product::table) return 40 * actions;
  if (product == Product::routing) return 200 * static_cast<double>(expected_units(layout, depth, policy));
  // Both directions. Blocks travel one by one under cached and direct, with their hop under the others.
  const double units = 2 * microbatches * static_cast<double>(expected_units(layout, depth, policy));
  const bool one_by_one = policy == Policy::cached || policy == Policy::direct;
  const double messages = one_by_one ? units : 2 * microbatches * layout.num_chunks();
  const double simulated = 110 * actions + 230 * messages + 150 * units;
  return simulated * (product == Product::json ? 3.0 : product == Product::text ? 1.4 : 1.0);
}

bool splits_backward(const Options& options) {
  const std::string name = options.schedule.value_or("1f1b");
  return name != "1f1b" && name != "interleaved" && name != "gpipe" && name != "looped-bfs";
}

void require_memory(double bytes, std::string_view what) {
  const double available = std::min({free_in_system(), free_in_control_group(), free_in_address_space()});
  if (bytes <= available) return;
  constexpr double gib = 1 << 30;
  throw OutOfMemory(
      fmt::format("{} needs about {:.1f} GiB of memory, {:.1f} GiB are free: take fewer microbatches, "
                  "or fewer ranks",
                  what, bytes / gib, available / gib));
}

std::string size_text(const Layout& layout) {
  return fmt::format("P={} V={} M={}", layout.pp(), layout.vp(), layout.microbatches());
}

}  // namespace plumb::cli

// SPDX-License-Identifier: Apache-2.0
#include "timelines.hpp"

#include <fmt/format.h>

namespace plumb::test {

std::string first_difference(const Timeline& a, const Timeline& b) {
  std::string text;
  const auto differs = [&](const std::string& what, SimTime in_a, SimTime in_b) {
    if (in_a == in_b) return false;
    text = fmt::format("{}: {} against {} ps", what, in_a.count(), in_b.count());
    return true;
  };
  for (std::size_t r = 0; r < a.ranks.size(); ++r) {
    for (std::size_t i = 0; i < a.ranks[r].compute.size(); ++i) {
      const ComputeTimes& x = a.ranks[r].compute[i];
      const ComputeTimes& y = b.ranks[r].compute[i];
      const std::string name = fmt::format("rank {} computation {}", r, i);
      if (differs(name + " start", x.start, y.start) || differs(name + " end", x.end, y.end) ||
          differs(name + " exposed", x.exposed, y.exposed))
        return text;
    }
    for (std::size_t i = 0; i < a.ranks[r].comm_done.size(); ++i) {
      if (differs(fmt::format("rank {} communication {}", r, i), a.ranks[r].comm_done[i], b.ranks[r].comm_done[i]))
        return text;
    }
  }
  for (std::size_t m = 0; m < a.messages.size(); ++m) {
    const MessageTimes& x = a.messages[m];
    const MessageTimes& y = b.messages[m];
    const std::string name = fmt::format("message {}", m);
    if (differs(name + " send_ready", x.send_ready, y.send_ready) || differs(name + " posted", x.posted, y.posted) ||
        differs(name + " start", x.start, y.start) || differs(name + " sent", x.sent, y.sent) ||
        differs(name + " arrived", x.arrived, y.arrived))
      return text;
    if (x.units != y.units) return name + " units";
  }
  differs("step", a.step, b.step);
  return text;
}

}  // namespace plumb::test

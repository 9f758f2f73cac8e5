// SPDX-License-Identifier: Apache-2.0
#include "train_lm/progress.hpp"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

namespace plumb::lm {

namespace {

std::string bar(std::int64_t done, std::int64_t of, std::size_t width) {
  const auto filled = static_cast<std::size_t>(static_cast<std::int64_t>(width) * done / of);
  return std::string(filled, '#') + std::string(width - filled, '.');
}

std::string minutes(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Progress::~Progress() {
  if (line_open_) {
    std::fputc('\n', stderr);
  }
}

// The first steps, which run different policies, then about ten more.
bool Progress::worth_a_line(const StepEvent& event) const {
  const std::int64_t every = std::max<std::int64_t>(1, event.of / 10);
  return event.done <= 4 || event.done == event.of || event.done % every == 0;
}

void Progress::step_done(const StepEvent& event) {
  const double seconds = std::chrono::duration<double>(event.wall).count();
  seconds_ += seconds;
  const double tokens_per_s = static_cast<double>(event.tokens) / seconds;
  if (terminal_) {
    const double left = seconds_ / static_cast<double>(event.done) * static_cast<double>(event.of - event.done);
    fmt::print(stderr, "\r[{}] step {}/{}  loss {:.4f}  {:.0f} tokens/s  {}  ETA {} \x1b[K",
               bar(event.done, event.of, 24), event.done, event.of, event.loss, tokens_per_s, to_string(event.policy),
               minutes(left));
    line_open_ = event.done < event.of;
    if (!line_open_) {
      std::fputc('\n', stderr);
    }
    std::fflush(stderr);
  } else if (worth_a_line(event)) {
    fmt::print(stderr, "step {}/{}  loss {:.4f}  {:.0f} tokens/s  {}\n", event.done, event.of, event.loss, tokens_per_s,
               to_string(event.policy));
  }
}

}  // namespace plumb::lm

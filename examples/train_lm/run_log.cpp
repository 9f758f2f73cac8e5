// SPDX-License-Identifier: Apache-2.0
#include "train_lm/run_log.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "exit.hpp"
#include "plumb/runtime/event_log.hpp"

namespace plumb::lm {

RunLog::RunLog(const std::string& file, const TrainPlan& plan) : plan_(plan), file_(file), out_(file) {
  if (!out_) {
    throw cli::EnvironmentError(fmt::format("--log {}: cannot be opened for writing", file));
  }
  write_log_header(out_, plan.chosen(), plan.shape, "plumb train");
}

void RunLog::write(const StepEvent& event) {
  std::int64_t zero_ns = std::numeric_limits<std::int64_t>::max();
  for (const StepRecord& record : event.records) {
    zero_ns = std::min(zero_ns, record.start_ns);
  }
  for (std::size_t rank = 0; rank < event.records.size(); ++rank) {
    write_log_step(out_, plan_.chosen(), RankId(rank), event.records[rank], zero_ns);
  }
  const double seconds = std::chrono::duration<double>(event.wall).count();
  out_ << fmt::format(R"({{"step":{},"loss":{},"policy":"{}","step_us":{:.1f},"tokens_per_s":{:.1f}}})", event.step,
                      event.loss, to_string(event.policy), seconds * 1e6, static_cast<double>(event.tokens) / seconds)
       << std::endl;
  if (!out_) {
    throw cli::EnvironmentError(fmt::format("--log {}: cannot be written to", file_));
  }
}

}  // namespace plumb::lm

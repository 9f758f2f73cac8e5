// SPDX-License-Identifier: Apache-2.0
#include "cache/support/comms.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace plumb::test {

CommsSchedule comms(std::string_view text) { return read_comms_csv(text, "test"); }

std::vector<CommsSchedule> torch_schedules() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(PLUMB_TORCH_COMMS_DATA)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<CommsSchedule> schedules;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    schedules.push_back(read_comms_csv(text, path.filename().string()));
  }
  return schedules;
}

CommsSchedule with_deferred_receives(const CommsSchedule& schedule) {
  CommsSchedule deferred = schedule;
  for (auto& items : deferred.ranks) {
    std::vector<CommAction> waiting;
    std::vector<CommsItem> result;
    for (const CommsItem& item : items) {
      const CommAction* comm = std::get_if<CommAction>(&item);
      if (comm != nullptr && (comm->op == CommOp::receive_forward || comm->op == CommOp::receive_backward)) {
        waiting.push_back(*comm);
        continue;
      }
      if (const Action* action = std::get_if<Action>(&item)) {
        for (const Compute* compute : {&action->first, action->second ? &*action->second : nullptr}) {
          if (compute == nullptr || compute->op == Op::backward_weight) continue;
          const CommOp needed = compute->op == Op::forward ? CommOp::receive_forward : CommOp::receive_backward;
          const auto found =
              std::find(waiting.begin(), waiting.end(), CommAction{needed, compute->chunk, compute->microbatch});
          if (found == waiting.end()) continue;
          result.emplace_back(*found);
          waiting.erase(found);
        }
      }
      result.push_back(item);
    }
    if (!waiting.empty()) throw std::logic_error("a receive that nobody needs: " + to_string(waiting.front()));
    items = std::move(result);
  }
  return deferred;
}

std::string faults_of(const CommsCheck& check) {
  std::string text;
  for (const ScheduleFault& fault : check.faults) {
    text += "row " + std::to_string(fault.rank.value) + " column " + std::to_string(fault.column) + " " + fault.token +
            ": " + fault.why + "\n";
  }
  return text;
}

std::string cycle_of(const DeadlockReport& report) {
  std::string text;
  for (const BlockedStep& step : report.cycle) {
    text += std::to_string(step.rank.value) + ":" + step.action + " ";
  }
  return text;
}

CommsCheck check_all(const CommsSchedule& schedule) { return check_comms(schedule, all_channel_models()); }

const ChannelVerdict& verdict(const CommsCheck& check, ChannelModel model) {
  for (const ChannelVerdict& one : check.channels) {
    if (one.deadlock.model == model) return one;
  }
  throw std::logic_error("no verdict for " + std::string(to_string(model)));
}

}  // namespace plumb::test

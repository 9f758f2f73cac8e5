// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/deadlock.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "deadlock_channels.hpp"
#include "deadlock_order.hpp"
#include "plumb/schedule/error.hpp"
#include "verify.hpp"
#include "verify_names.hpp"

namespace plumb {
namespace {

constexpr std::array<std::string_view, 6> model_names = {"buffered",    "fifo-per-edge", "fifo-per-pair",
                                                         "shared-fifo", "single-stream", "rendezvous"};

// One run without times. A step is looked at when it may have become able to go on: it then finishes, or subscribes to
// the one thing it found missing, which is also what a report follows.
class Run {
 public:
  Run(const Program& program, ChannelModel model)
      : program_(program), model_(model), numbers_(program), plan_(plan_channels(program, numbers_, model)) {
    const std::size_t nodes = numbers_.size() + plan_.group_size.size();
    state_.assign(nodes, State::waiting);
    missing_.assign(numbers_.size(), none);
    first_subscriber_.assign(nodes, none);
    next_subscriber_.assign(numbers_.size(), none);
    next_wait_.assign(numbers_.size(), 0);
    group_left_ = plan_.group_size;
  }

  // True if every step finished.
  bool run() {
    for (RankId rank; rank.index() < program_.ranks.size(); rank = rank.next()) {
      for (const StepRef& step : program_.ranks[rank.index()].order) {
        ready_.push_back(numbers_.of(rank, step));
        work();
      }
    }
    return num_done_ == numbers_.size();
  }

  // REQUIRES: run() returned false. `unmatched`: as in DeadlockReport.
  std::vector<BlockedStep> cycle(bool& unmatched) const {
    std::vector<std::int32_t> path;
    std::vector<std::int32_t> place(numbers_.size(), none);
    std::int32_t step = first_unfinished();
    while (step != none && place[at(step)] == none) {
      place[at(step)] = static_cast<std::int32_t>(path.size());
      path.push_back(step);
      step = waits_for(step);
    }
    unmatched = step == none;
    if (unmatched) return {report(path.back())};
    path.erase(path.begin(), path.begin() + place[at(step)]);
    // Steps that only stand behind others in a queue say nothing; the others cannot all be such, for queues have heads.
    std::erase_if(path, [&](std::int32_t member) { return queued(member); });
    std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());
    std::vector<BlockedStep> result;
    for (const std::int32_t member : path) {
      result.push_back(report(member));
    }
    return result;
  }

 private:
  enum class State : std::uint8_t {
    waiting,
    posted,  // a send or receive that lacks only its partner
    done
  };
  static constexpr std::int32_t none = ChannelPlan::none;

  static std::size_t at(std::int32_t number) { return static_cast<std::size_t>(number); }
  bool done(std::int32_t node) const { return state_[at(node)] == State::done; }

  void work() {
    while (!ready_.empty()) {
      const std::int32_t step = ready_.back();
      ready_.pop_back();
      if (!done(step)) advance(step);
    }
  }

  void advance(std::int32_t number) {
    const RankId rank = numbers_.rank_of(number);
    const StepRef step = numbers_.step_of(number);
    const RankProgram& steps = program_.ranks[rank.index()];
    const CommStep* comm = step.comm ? &steps.comm[at(step.index)] : nullptr;
    const auto waits = steps.waits_of(comm != nullptr ? comm->waits : steps.compute[at(step.index)].waits);
    for (std::uint32_t& next = next_wait_[at(number)]; next < waits.size(); ++next) {
      const std::int32_t event = numbers_.of(rank, StepRef(waits[next]));
      if (!done(event)) return subscribe(number, event);
    }
    const std::int32_t before = plan_.before[at(number)];
    if (before != none && !done(before)) return subscribe(number, before);
    if (comm == nullptr || comm->kind == CommKind::add || comm->kind == CommKind::zero) return finish(number);
    const std::int32_t partner = plan_.partner[at(number)];
    state_[at(number)] = State::posted;
    if (model_ == ChannelModel::buffered) {
      if (comm->kind == CommKind::send || (partner != none && done(partner))) return finish(number);
      if (partner != none) subscribe(number, partner);
    } else if (partner != none && state_[at(partner)] == State::posted && kind_of(partner) != comm->kind) {
      finish(number);
      finish(partner);
    }
  }

  CommKind kind_of(std::int32_t number) const {
    return program_.ranks[numbers_.rank_of(number).index()].comm[at(numbers_.step_of(number).index)].kind;
  }

  void subscribe(std::int32_t step, std::int32_t event) {
    missing_[at(step)] = event;
    next_subscriber_[at(step)] = first_subscriber_[at(event)];
    first_subscriber_[at(event)] = step;
  }

  void finish(std::int32_t number) {
    ++num_done_;
    complete(number);
    if (plan_.group.empty() || plan_.group[at(number)] == none) return;
    const std::int32_t group = plan_.group[at(number)];
    if (--group_left_[at(group)] == 0) complete(static_cast<std::int32_t>(numbers_.size()) + group);
  }

  void complete(std::int32_t node) {
    state_[at(node)] = State::done;
    for (std::int32_t step = first_subscriber_[at(node)]; step != none; step = next_subscriber_[at(step)]) {
      ready_.push_back(step);
    }
  }

  // --- What a stuck step waits for -------------------------------------------------------------------------------

  std::int32_t first_unfinished() const {
    for (RankId rank; rank.index() < program_.ranks.size(); rank = rank.next()) {
      for (const StepRef& step : program_.ranks[rank.index()].order) {
        if (const std::int32_t number = numbers_.of(rank, step); !done(number)) return number;
      }
    }
    return none;
  }

  bool queued(std::int32_t step) const {
    return state_[at(step)] == State::waiting && missing_[at(step)] == plan_.before[at(step)];
  }

  std::int32_t waits_for(std::int32_t step) const {
    if (state_[at(step)] == State::posted) return plan_.partner[at(step)];
    std::int32_t event = missing_[at(step)];
    if (at(event) < numbers_.size()) return event;
    event = plan_.group_first[at(event) - numbers_.size()];
    while (done(event)) {
      ++event;  // the members of an unfinished group lie side by side
    }
    return event;
  }

  BlockedStep report(std::int32_t number) const {
    const RankId rank = numbers_.rank_of(number);
    return {rank, step_token(program_, rank, numbers_.step_of(number))};
  }

  const Program& program_;
  ChannelModel model_;
  StepNumbers numbers_;
  ChannelPlan plan_;
  std::vector<State> state_;                    // [node]
  std::vector<std::int32_t> missing_;           // [step]: the node it subscribed to last
  std::vector<std::int32_t> first_subscriber_;  // [node]: head of a list
  std::vector<std::int32_t> next_subscriber_;   // [step]
  std::vector<std::uint32_t> next_wait_;        // [step]: waits before this one are over
  std::vector<std::int32_t> group_left_;
  std::vector<std::int32_t> ready_;
  std::size_t num_done_ = 0;
};

}  // namespace

std::string_view to_string(ChannelModel model) { return model_names[static_cast<std::size_t>(model)]; }

std::vector<ChannelModel> all_channel_models() {
  std::vector<ChannelModel> models;
  for (std::size_t i = 0; i < model_names.size(); ++i) {
    models.push_back(static_cast<ChannelModel>(i));
  }
  return models;
}

ChannelModel parse_channel_model(std::string_view text) {
  for (const ChannelModel model : all_channel_models()) {
    if (to_string(model) == text) return model;
  }
  throw InputError(fmt::format("unknown channel model; the models are {}", fmt::join(model_names, ", ")));
}

DeadlockReport check_deadlock(const Program& program, ChannelModel model) {
  FaultList faults(1);
  verify_structure(program, faults);
  if (!faults.empty()) {
    const ProgramFault& fault = faults.front();
    throw InputError(fmt::format("program of rank {}, {}: {}", fault.rank.value, fault.token, fault.why));
  }
  DeadlockReport report;
  report.model = model;
  if (follows_one_order(program)) return report;
  Run run(program, model);
  report.deadlock = !run.run();
  if (report.deadlock) report.cycle = run.cycle(report.unmatched);
  return report;
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "train_lm/trainer.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "plumb/runtime/executor.hpp"
#include "plumb/schedule/error.hpp"
#include "train_lm/adamw.hpp"
#include "train_lm/agreement.hpp"
#include "train_lm/backward_time.hpp"
#include "train_lm/checkpoint.hpp"
#include "train_lm/gather.hpp"
#include "train_lm/gradient_check.hpp"
#include "train_lm/observers.hpp"
#include "train_lm/rank_model.hpp"
#include "train_lm/reference.hpp"
#include "train_lm/training_state.hpp"

namespace plumb::lm {

namespace {

// Runs `action` on every rank; if it fails on one, all throw.
template <class Action>
void together(ControlPlane* control, const Action& action) {
  std::string error;
  try {
    action();
  } catch (const InputError& failed) {
    error = failed.what();
  }
  agree_on_errors(control, error);
}

// The plain torch model that rank 0 trains beside the pipeline.
struct Reference {
  ReferenceModel model;
  AdamW optimizer;

  explicit Reference(const TrainPlan& plan) : model(plan.model), optimizer(model.parameters(), plan.learning_rate) {
    if (plan.resumed) {
      restore(optimizer, plan.load_folder, *plan.resumed);
    }
  }

  double step(std::span<const TokenBatch> batches) {
    const double loss = model.accumulate(batches);
    optimizer.step();
    optimizer.zero_gradients();
    return loss;
  }
};

// What a rank tells the others after a step.
struct StepNote {
  double loss = 0;  // of the head's rank, else 0
  std::uint64_t has_loss = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t peak_deferred_bytes = 0;
  // Since the run began.
  std::int64_t input_ns = 0;
  std::int64_t weight_ns = 0;
};

bool splits_backward(const Program& program) {
  for (const RankProgram& rank : program.ranks) {
    for (const ComputeStep& step : rank.compute) {
      if (step.compute.op == Op::backward_weight) {
        return true;
      }
    }
  }
  return false;
}

class RankTrainer {
 public:
  RankTrainer(const TrainPlan& plan, const Text& text, const RankLinks& links, StepListener* listener)
      : plan_(plan),
        text_(text),
        links_(links),
        listener_(links.rank == RankId{0} ? listener : nullptr),
        model_(plan.model, plan.chosen().layout, plan.chosen().depth, links.rank,
               {plan.recompute, plan.stats_every > 0}),
        optimizer_(model_.parameters(), plan.learning_rate),
        log_(plan.log ? std::make_unique<StepLog>(links.rank) : nullptr),
        observers_(log_ ? std::vector<StepObserver*>{&backward_time_, log_.get()}
                        : std::vector<StepObserver*>{&backward_time_}),
        executor_(links.rank, model_.stages(), links.transport, links.control, observed_by(observers_)) {
    if (plan.resumed) {
      drawn_ = plan.resumed->sequences_drawn;
      together(links.control, [&] { restore(optimizer_, plan_.load_folder, *plan_.resumed); });
    }
    for (const PolicyPlan& policy : plan.policies) {
      handles_.push_back(executor_.prepare(policy.program, plan.shape));
      if (log_) {
        log_->expect(*policy.program);
      }
    }
    result_.wire_bytes.resize(plan.policies.size());
    if (splits_backward(plan.chosen())) {
      result_.split_backward.emplace();
    }
  }

  TrainResult run() {
    if (plan_.check) {
      result_.reference.emplace();
      if (links_.rank == RankId{0}) {
        reference_ = std::make_unique<Reference>(plan_);
      }
      check_gradients();
    }
    for (std::int64_t step = 0; step < plan_.steps; ++step) {
      train_step(step);
    }
    if (!plan_.save_folder.empty()) {
      save();
    }
    return std::move(result_);
  }

 private:
  static ExecutorOptions observed_by(StepObserver& observer) {
    ExecutorOptions options;
    options.observer = &observer;
    return options;
  }

  std::vector<TokenBatch> next_batches() const {
    std::vector<TokenBatch> batches;
    for (int m = 0; m < plan_.chosen().layout.microbatches(); ++m) {
      const auto first = drawn_ + static_cast<std::uint64_t>(m) * static_cast<std::uint64_t>(plan_.model.sequences);
      batches.push_back(text_.batch(plan_.model.seed, first, plan_.model.sequences, plan_.model.sequence));
    }
    return batches;
  }

  // The same first step under every policy, without an update, against the reference's gradients.
  void check_gradients() {
    model_.batches().microbatches = next_batches();
    std::vector<Parameter> expected;
    if (reference_) {
      reference_->model.accumulate(model_.batches().microbatches);
      expected = reference_->model.parameters();
    }
    for (std::size_t policy = 0; policy < handles_.size(); ++policy) {
      run_step(policy);
      const double gap = compare_gradients(links_.control, model_.parameters(), expected);
      double& largest = result_.reference->max_gradient_difference;
      largest = gap > largest || std::isnan(gap) ? gap : largest;
      optimizer_.zero_gradients();
    }
    if (reference_) {
      reference_->optimizer.zero_gradients();
    }
  }

  void train_step(std::int64_t step) {
    model_.batches().microbatches = next_batches();
    const std::size_t policy = plan_.policy_of_step(step);
    const auto started = std::chrono::steady_clock::now();
    const bool with_depth = plan_.depth_report_after(step + 1);
    model_.observe_depth(with_depth);
    const StepResult done = run_step(policy);
    const double loss = exchange_note(done, policy);
    std::vector<DepthReport> depth;
    if (with_depth) {
      depth = gather_reports(links_.control, model_.depth_reports());
    }
    optimizer_.step();
    optimizer_.zero_gradients();
    const auto wall = std::chrono::steady_clock::now() - started;
    if (!std::isfinite(loss)) {
      throw NumericError(fmt::format("the loss is {} in step {}; try a smaller --lr than {}", loss,
                                     optimizer_.num_steps(), plan_.learning_rate));
    }
    result_.losses.push_back(loss);
    drawn_ += model_.batches().microbatches.size() * static_cast<std::uint64_t>(plan_.model.sequences);
    if (reference_) {
      compare_loss(loss, reference_->step(model_.batches().microbatches));
    }
    // An event log is of one program: the chosen one.
    const std::vector<StepRecord> records =
        log_ && policy + 1 == handles_.size() ? gather_records() : std::vector<StepRecord>();
    if (listener_ != nullptr) {
      const auto tokens = static_cast<std::int64_t>(model_.batches().microbatches.size()) * plan_.model.tokens();
      listener_->step_done({optimizer_.num_steps(), step + 1, plan_.steps, plan_.policies[policy].policy, loss, wall,
                            tokens, records, depth});
    }
  }

  StepResult run_step(std::size_t policy) {
    if (!log_) {
      return executor_.run(handles_[policy]);
    }
    log_->begin(*plan_.policies[policy].program, optimizer_.num_steps() + 1);
    const StepResult done = executor_.run(handles_[policy]);
    log_->end();
    return done;
  }

  std::vector<StepRecord> gather_records() {
    std::vector<StepRecord> records;
    for (const std::string& bytes : gather(links_.control, to_bytes(log_->record()))) {
      records.push_back(record_from_bytes(bytes));
    }
    return records;
  }

  // Loss and traffic of the step, known to all.
  double exchange_note(const StepResult& done, std::size_t policy) {
    StepNote mine;
    mine.sent_bytes = done.sent.total_bytes();
    mine.peak_deferred_bytes = done.peak_deferred_bytes;
    mine.input_ns = backward_time_.of_inputs().count();
    mine.weight_ns = backward_time_.of_weights().count();
    if (model_.head() != nullptr) {
      mine.has_loss = 1;
      mine.loss = model_.head()->step_loss();
    }
    std::vector<StepNote> notes = {mine};
    if (links_.control != nullptr) {
      notes.clear();
      const std::string text(reinterpret_cast<const char*>(&mine), sizeof(mine));
      for (const std::string& other : links_.control->exchange(text, kControlLimit)) {
        StepNote note;
        std::memcpy(&note, other.data(), sizeof(note));
        notes.push_back(note);
      }
    }
    double loss = 0;
    std::int64_t wire = 0;
    for (const StepNote& note : notes) {
      loss = note.has_loss != 0 ? note.loss : loss;
      wire += static_cast<std::int64_t>(note.sent_bytes);
    }
    if (result_.split_backward) {
      add_up(notes, *result_.split_backward);
    }
    auto& known = result_.wire_bytes[policy];
    result_.wire_steady = result_.wire_steady && known.value_or(wire) == wire;
    known = wire;
    return loss;
  }

  static void add_up(const std::vector<StepNote>& notes, SplitBackward& split) {
    double inputs = 0;
    double weights = 0;
    for (const StepNote& note : notes) {
      inputs += static_cast<double>(note.input_ns);
      weights += static_cast<double>(note.weight_ns);
      split.peak_deferred_bytes =
          std::max(split.peak_deferred_bytes, static_cast<std::int64_t>(note.peak_deferred_bytes));
    }
    split.weight_share = inputs + weights > 0 ? weights / (inputs + weights) : 0;
  }

  void compare_loss(double loss, double expected) {
    ReferenceComparison& comparison = *result_.reference;
    const double gap = std::abs(loss - expected);
    if (result_.losses.size() == 1) {
      comparison.first_loss_difference = gap / std::abs(expected);
    }
    if (gap > comparison.max_loss_difference || std::isnan(gap)) {
      comparison.max_loss_difference = gap;
    }
  }

  void save() {
    PartFile mine;
    together(links_.control, [&] { mine = write_part(plan_.save_folder, state_tensors(optimizer_)); });
    std::vector<PartFile> parts = {mine};
    if (links_.control != nullptr) {
      parts.clear();
      const std::string text = fmt::format("{} {} {}", mine.file, mine.size_bytes, mine.checksum);
      for (const std::string& other : links_.control->exchange(text, kControlLimit)) {
        const std::size_t first = other.find(' ');
        const std::size_t second = other.find(' ', first + 1);
        parts.push_back(
            {other.substr(0, first), std::stoull(other.substr(first + 1)), std::stoull(other.substr(second + 1))});
      }
    }
    together(links_.control, [&] {
      if (links_.rank == RankId{0}) {
        commit_checkpoint(plan_.save_folder, {plan_.model, optimizer_.num_steps(), drawn_, plan_.learning_rate}, parts);
      }
    });
  }

  const TrainPlan& plan_;
  const Text& text_;
  RankLinks links_;
  StepListener* listener_;
  RankModel model_;
  AdamW optimizer_;
  BackwardTime backward_time_;
  std::unique_ptr<StepLog> log_;  // with --log
  Observers observers_;
  Executor executor_;
  std::vector<ProgramHandle> handles_;
  std::unique_ptr<Reference> reference_;
  std::uint64_t drawn_ = 0;
  TrainResult result_;
};

}  // namespace

TrainResult train(const TrainPlan& plan, const Text& text, const RankLinks& links, StepListener* listener) {
  return RankTrainer(plan, text, links, listener).run();
}

}  // namespace plumb::lm

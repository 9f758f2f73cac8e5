// SPDX-License-Identifier: Apache-2.0
#include "compute_runner.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb {

ComputeRunner::ComputeRunner(const RankPlan& plan, StepMemory& memory, const StageTable& stages, StepObserver* observer)
    : plan_(plan), memory_(memory), stages_(stages), observer_(observer) {
  for (const ChunkId chunk : plan.program->layout.chunks_on(plan.rank)) {
    if (chunk.index() >= stages.size() || stages[chunk.index()] == nullptr) {
      throw InputError(fmt::format("rank {} has no stage for its chunk {}", plan.rank.value, chunk.value));
    }
  }
  for (auto* views : {&sources_, &closed_values_})
    views->reserve(plan.most_operands);
  closed_.reserve(plan.most_operands);
  grad_closed_.reserve(plan.most_operands);
  grad_sources_.reserve(plan.most_operands);
  deferred_bytes_.resize(stages.size(), 0);
}

void ComputeRunner::reset() {
  std::fill(deferred_bytes_.begin(), deferred_bytes_.end(), 0);
  total_deferred_bytes_ = 0;
  peak_deferred_bytes_ = 0;
}

// Only the halves of a split backward change what a stage keeps between them.
void ComputeRunner::note_deferred(const Compute& compute) {
  std::size_t& known = deferred_bytes_[compute.chunk.index()];
  total_deferred_bytes_ -= known;
  known = stages_[compute.chunk.index()]->deferred_bytes();
  total_deferred_bytes_ += known;
  peak_deferred_bytes_ = std::max(peak_deferred_bytes_, total_deferred_bytes_);
}

void ComputeRunner::run(std::size_t index) {
  const Compute& compute = plan_.steps().compute[index].compute;
  if (observer_ != nullptr) observer_->compute_starting(plan_.rank, compute);
  if (compute.op == Op::forward) {
    forward(compute, index);
  } else {
    backward(compute, index);
  }
  if (compute.op == Op::backward_input || compute.op == Op::backward_weight) note_deferred(compute);
  if (observer_ != nullptr) observer_->compute_finished(plan_.rank, compute);
  memory_.compute_finished(index);
}

void ComputeRunner::forward(const Compute& compute, std::size_t index) {
  const Range range = plan_.operands_of_compute[index];
  BlockStore& store = memory_.store();
  StageForward args;
  sources_.clear();
  closed_.clear();
  for (std::uint32_t i = range.begin; i < range.end; ++i) {
    const PlannedOperand& operand = plan_.operands[i];
    memory_.take(operand, index);
    const View view = store.view(operand.slot);
    switch (operand.role) {
      case Role::source:
        sources_.push_back({operand.block, view});
        break;
      case Role::partial_in:
        args.partial_in = view;
        break;
      case Role::closed:
        closed_.push_back({operand.block, view});
        break;
      case Role::partial_out:
        args.partial_out = view;
        break;
      default:
        break;  // a forward has no gradients
    }
  }
  args.microbatch = compute.microbatch;
  args.mode = plan_.program->forward_only ? ForwardMode::evaluate : ForwardMode::train;
  args.sources = sources_;
  args.closed = closed_;
  stages_[compute.chunk.index()]->forward(args);
}

void ComputeRunner::backward(const Compute& compute, std::size_t index) {
  const Range range = plan_.operands_of_compute[index];
  BlockStore& store = memory_.store();
  StageBackward args;
  sources_.clear();
  closed_values_.clear();
  grad_closed_.clear();
  grad_sources_.clear();
  for (std::uint32_t i = range.begin; i < range.end; ++i) {
    const PlannedOperand& operand = plan_.operands[i];
    if (operand.role == Role::partial_out) continue;
    memory_.take(operand, index);
    const View view = store.view(operand.slot);
    switch (operand.role) {
      case Role::source:
        sources_.push_back({operand.block, view});
        break;
      case Role::partial_in:
        args.partial_in = view;
        break;
      case Role::closed:
        closed_values_.push_back({operand.block, view});
        break;
      case Role::partial_out:
        break;
      case Role::grad_partial_out:
        args.grad_partial_out = view;
        break;
      case Role::grad_closed:
        memory_.check_complete(operand.counter, index);
        grad_closed_.push_back({operand.block, view, operand.first_touch});
        break;
      case Role::grad_source:
        grad_sources_.push_back({operand.block, view, operand.first_touch});
        break;
      case Role::grad_partial_in:
        args.grad_partial_in = view;
        break;
    }
  }
  args.microbatch = compute.microbatch;
  args.sources = sources_;
  args.closed = closed_values_;
  args.grad_closed = grad_closed_;
  args.grad_sources = grad_sources_;
  Stage& stage = *stages_[compute.chunk.index()];
  if (compute.op == Op::backward) {
    stage.backward(args);
  } else if (compute.op == Op::backward_input) {
    stage.backward_input(args);
  } else {
    stage.backward_weight(compute.microbatch);
  }
  for (std::uint32_t i = range.begin; i < range.end; ++i) {
    if (plan_.operands[i].role == Role::grad_source) memory_.counts().add(plan_.operands[i].counter);
  }
}

}  // namespace plumb

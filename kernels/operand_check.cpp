// SPDX-License-Identifier: Apache-2.0
#include "operand_check.hpp"

#include <stdexcept>

namespace plumb::kernels_detail {

void OperandCheck::refuse(const std::string& problem) const {
  const ChunkRange& range = context_.range;
  const std::string where = range.count == 0 ? "empty chunk before sublayer " + std::to_string(range.first)
                                             : "sublayers " + std::to_string(range.first) + ".." +
                                                   std::to_string(range.first + range.count - 1);
  throw std::invalid_argument("block machine, " + where + ", " + call_ + ": " + problem);
}

void OperandCheck::count(const char* what, std::size_t got, int due) const {
  if (got != static_cast<std::size_t>(due)) {
    refuse(std::string(what) + ": " + std::to_string(due) + " expected, got " + std::to_string(got));
  }
}

void OperandCheck::tensor(const char* what, const void* pointer, bool due) const {
  if (due && pointer == nullptr) {
    refuse(std::string(what) + " is null, but this chunk needs it");
  }
  if (!due && pointer != nullptr) {
    refuse(std::string(what) + " is given, but this chunk has none; legal: null");
  }
}

void OperandCheck::element(const char* what, std::size_t i, const void* pointer) const {
  if (pointer == nullptr) {
    refuse(std::string(what) + "[" + std::to_string(i) + "] is null");
  }
}

void OperandCheck::forward(const MachineForward& args) const {
  const ChunkPlan& plan = context_.plan;
  if (args.tokens < 1) {
    refuse("number of tokens is " + std::to_string(args.tokens) + "; legal: 1 or more");
  }
  if (plan.num_read > 0) {
    count("sources", args.sources.size(), plan.depth.num_sources);
    for (std::size_t i = 0; i < args.sources.size(); ++i) {
      element("sources", i, args.sources[i]);
    }
  } else if (!args.sources.empty()) {
    count("sources of a chunk that reads none", args.sources.size(), plan.depth.num_sources);
  }
  count("closed blocks", args.closed.size(), plan.depth.num_closed);
  for (std::size_t i = 0; i < args.closed.size(); ++i) {
    element("closed", i, args.closed[i]);
  }
  tensor("partial_in", args.partial_in, plan.depth.partial_in);
  tensor("partial_out", args.partial_out, plan.depth.partial_out);
  tensor("head", args.head, plan.head);
}

void OperandCheck::backward(const MachineBackward& args) const {
  const ChunkPlan& plan = context_.plan;
  if (plan.num_read > 0) {
    count("sources", args.sources.size(), plan.depth.num_sources);
    count("gradients of sources", args.grad_sources.size(), plan.depth.num_sources);
    for (std::size_t i = 0; i < args.sources.size(); ++i) {
      element("sources", i, args.sources[i]);
    }
  } else {
    if (!args.sources.empty()) {
      count("sources of a chunk that reads none", args.sources.size(), plan.depth.num_sources);
    }
    if (!args.grad_sources.empty()) {
      count("gradients of sources of a chunk that reads none", args.grad_sources.size(), plan.depth.num_sources);
    }
  }
  for (std::size_t i = 0; i < args.grad_sources.size(); ++i) {
    element("grad_sources", i, args.grad_sources[i].sum);
  }
  count("closed blocks", args.closed.size(), plan.depth.num_closed);
  count("gradients of closed blocks", args.grad_closed.size(), plan.depth.num_closed);
  for (std::size_t i = 0; i < args.closed.size(); ++i) {
    if (plan.depth.num_sources + static_cast<int>(i) < plan.num_read) {
      element("closed", i, args.closed[i]);
    }
    element("grad_closed", i, args.grad_closed[i].sum);
  }
  tensor("partial_in", args.partial_in, plan.depth.partial_in);
  tensor("grad_partial_in", args.grad_partial_in, plan.depth.partial_in);
  tensor("grad_partial_out", args.grad_partial_out, plan.depth.partial_out);
  tensor("grad_head", args.grad_head, plan.head);
}

}  // namespace plumb::kernels_detail

// SPDX-License-Identifier: Apache-2.0
#include "cpu_fp64.hpp"

#include <cstring>
#include <vector>

#include "row_math.hpp"

namespace plumb::kernels_detail {

namespace {

void normalise(const DepthProblem& problem, const OutputNorm& norm, void* h) {
  if (norm.gain == nullptr || h == nullptr) {
    return;
  }
  const double* gain = static_cast<const double*>(norm.gain);
  for (std::int64_t t = 0; t < problem.tokens; ++t) {
    double* out = row<double>(h, t, problem.width);
    const double factor = inverse_rms_of_row<double>(out, problem.width, norm.eps);
    for (std::int64_t j = 0; j < problem.width; ++j) {
      out[j] *= factor * gain[j];
    }
  }
}

}  // namespace

void phase_one_fp64(const DepthProblem& problem, const PhaseOneForward& args) {
  for (std::size_t i = 0; i < args.inverse_rms_out.size(); ++i) {
    if (args.inverse_rms_out[i] == nullptr) {
      continue;
    }
    if (args.sources[i].inverse_rms == nullptr) {
      inverse_rms(problem, args.sources[i].value, args.inverse_rms_out[i]);
    } else {
      std::memcpy(args.inverse_rms_out[i], args.sources[i].inverse_rms,
                  static_cast<std::size_t>(problem.tokens) * sizeof(double));
    }
  }
  phase_one_forward(problem, {args.sources, args.queries});
}

void aggregate_fp64(const DepthProblem& problem, const AggregateForward& args) {
  aggregate_forward(problem, {args.sources, args.query, args.h, args.lse});
  normalise(problem, args.norm, args.h);
}

void merge_fp64(const DepthProblem& problem, const MergeForward& args) {
  MergeForward plain{args.o, args.lse_in, args.later, args.query, args.h, args.lse_out};
  std::vector<DepthSource> later;
  if (args.output != nullptr) {
    add_output(problem, args.later.back().value, args.output, args.partial_out);
    later.assign(args.later.begin(), args.later.end());
    later.back() = {args.partial_out, nullptr};
    plain.later = later;
  }
  if (args.o == nullptr) {
    aggregate_forward(problem, {plain.later, args.query, args.h, args.lse_out});
  } else {
    merge_forward(problem, plain);
  }
  normalise(problem, args.norm, args.h);
}

// Without a mixture the first of `later` takes its place: it is one, with its logit as log sum.
void merge_backward_fp64(const DepthProblem& problem, const MergeBackward& args) {
  if (args.o != nullptr) {
    merge_backward(problem, args);
    return;
  }
  std::vector<double> lse(static_cast<std::size_t>(problem.tokens));
  aggregate_forward(problem, {args.later.first(1), args.query, nullptr, lse.data()});
  MergeBackward rest = args;
  rest.o = args.later[0].value;
  rest.lse_in = lse.data();
  rest.later = args.later.subspan(1);
  if (rest.later.empty() && args.grad_partial != nullptr) {
    rest.grad_partial = nullptr;
    const DepthSourceGradient sole{args.later[0], args.grad_partial, false};
    aggregate_backward(problem, {{&sole, 1}, args.query, args.grad_h, nullptr});
  }
  merge_backward(problem, rest);
}

void add_output_fp64(const DepthProblem& problem, const cpu::AddOutput& args) {
  add_output(problem, args.partial, args.output, args.out);
  if (args.inverse_rms != nullptr) {
    inverse_rms(problem, args.out, args.inverse_rms);
  }
}

void weighted_sum_fp64(const DepthProblem& problem, const cpu::WeightedSum& args) {
  const std::size_t outputs = args.out.size();
  const double* weight = static_cast<const double*>(args.weights);
  for (std::int64_t t = 0; t < problem.tokens; ++t) {
    for (std::size_t g = 0; g < outputs; ++g) {
      double* out = row<double>(args.out[g], t, problem.width);
      std::memset(out, 0, static_cast<std::size_t>(problem.width) * sizeof(double));
      for (std::size_t i = 0; i < args.sources.size(); ++i) {
        add_scaled(out, weight[i * outputs + g], row<double>(args.sources[i], t, problem.width), problem.width);
      }
    }
    weight += args.sources.size() * outputs;
  }
}

}  // namespace plumb::kernels_detail

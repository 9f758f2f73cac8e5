// SPDX-License-Identifier: Apache-2.0
// cpu_case.hpp: operands for the fast operators in any storage format, and the same numbers in double for the
// reference.
//
// Values are as uneven as blocks of a real model: every row of a source has its own log-normal size.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/support/rows.hpp"
#include "plumb/kernels/cpu_operators.hpp"
#include "plumb/kernels/number_formats.hpp"

namespace plumb::testing {

inline float widened(float value) { return value; }
inline float widened(Bf16 value) { return to_float(value); }
inline float widened(Fp16 value) { return to_float(value); }

template <class V>
V stored(double value) {
  if constexpr (std::is_same_v<V, Bf16>) {
    return to_bf16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<V, Fp16>) {
    return to_fp16(static_cast<float>(value));
  } else {
    return static_cast<V>(value);
  }
}

template <class V>
constexpr Storage kFormat = std::is_same_v<V, Bf16>   ? Storage::bf16
                            : std::is_same_v<V, Fp16> ? Storage::fp16
                                                      : Storage::fp32;

template <class V>
Rows<V> not_a_number(std::int64_t size) {
  return Rows<V>(static_cast<std::size_t>(size), stored<V>(std::numeric_limits<double>::quiet_NaN()));
}

template <class V>
Rows<double> to_double(const Rows<V>& in) {
  Rows<double> out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    out[i] = static_cast<double>(widened(in[i]));
  }
  return out;
}

inline bool same_bytes(const void* a, const void* b, std::size_t size_bytes) {
  return std::memcmp(a, b, size_bytes) == 0;
}
template <class V>
bool same_rows(const Rows<V>& a, const Rows<V>& b) {
  return a.size() == b.size() && (a.empty() || same_bytes(a.data(), b.data(), a.size() * sizeof(V)));
}

/// dq from its sums, by the reference.
template <class A>
Rows<A> reduced_query_gradient(const DepthProblem& problem, Rows<A>& sums, const Rows<A>& query) {
  const Rows<A> ones(static_cast<std::size_t>(problem.width), A(1));
  Rows<A> dq = zeros<A>(problem.width);
  Rows<A> unused = dq;
  reduce_query_gradient(problem, {sums.data(), query.data(), ones.data(), dq.data(), unused.data()});
  return dq;
}

/// An Execution that owns its threads and its workspace, poisoned before every use.
class TestExecution {
 public:
  explicit TestExecution(cpu::Isa isa = cpu::best_isa(), int num_threads = 1) : isa_(isa), threads_(num_threads) {}

  cpu::Execution operator()(const DepthProblem& problem, std::size_t num_sources, std::size_t num_queries) {
    const std::size_t size = cpu::workspace_bytes(problem, static_cast<int>(num_sources), static_cast<int>(num_queries),
                                                  threads_.num_threads());
    memory_.assign(size + 64, std::byte{0xff});
    const auto misfit = reinterpret_cast<std::uintptr_t>(memory_.data()) % 64;
    return {{memory_.data() + (misfit == 0 ? 0 : 64 - misfit), size}, &threads_, isa_};
  }

 private:
  cpu::Isa isa_;
  cpu::CpuThreads threads_;
  std::vector<std::byte> memory_;
};

/// The fast operators of the CPU by the names under which checks call those of any device.
class CpuRun {
 public:
  void phase_one(const DepthProblem& problem, const PhaseOneForward& args) {
    cpu::phase_one_forward(problem, args, execution_(problem, args.sources.size(), args.queries.size()));
  }
  void aggregate(const DepthProblem& problem, const AggregateForward& args) {
    cpu::aggregate_forward(problem, args, execution_(problem, args.sources.size(), 1));
  }
  void merge(const DepthProblem& problem, const MergeForward& args) {
    cpu::merge_forward(problem, args, execution_(problem, args.later.size(), 1));
  }
  void merge_backward(const DepthProblem& problem, const MergeBackward& args) {
    cpu::merge_backward(problem, args, execution_(problem, args.later.size(), 1));
  }
  void inter_block_backward(const DepthProblem& problem, const InterBlockBackward& args) {
    cpu::inter_block_backward(problem, args, execution_(problem, args.sources.size(), args.readers.size()));
  }
  Rows<float> query_gradient(const DepthProblem& problem, Rows<float>& sums, const Rows<float>& query) {
    return reduced_query_gradient(problem, sums, query);
  }

 private:
  TestExecution execution_;
};

/// Closed sources, one open partial, queries and gradients G = dL/dh per query.
template <class V>
struct CpuCase {
  DepthProblem problem;
  std::vector<Rows<V>> sources;
  Rows<V> partial;
  std::vector<Rows<float>> scales;
  std::vector<Rows<float>> queries;
  std::vector<Rows<float>> grads;

  CpuCase(std::int64_t tokens, std::int64_t width, int num_sources, int num_queries, double query_norm,
          const std::string& name = "case")
      : problem{tokens, width, kFormat<V>, 1e-6} {
    for (int i = 0; i < num_sources; ++i) {
      sources.push_back(uneven(name + " source " + std::to_string(i)));
    }
    partial = uneven(name + " partial");
    for (int l = 0; l < num_queries; ++l) {
      queries.push_back(random_rows<float>(name + " q " + std::to_string(l), width,
                                           query_norm / std::sqrt(static_cast<double>(width))));
      grads.push_back(random_rows<float>(name + " G " + std::to_string(l), tokens * width));
    }
    rescale();
  }

  Rows<V> uneven(const std::string& name) const {
    const Rows<float> even = random_rows<float>(name, problem.tokens * problem.width);
    const CounterRng sizes(11, name);
    Rows<V> out(even.size());
    for (std::size_t k = 0; k < even.size(); ++k) {
      const double size = std::exp(sizes.normal(k / static_cast<std::size_t>(problem.width)));
      out[k] = stored<V>(size * static_cast<double>(even[k]));
    }
    return out;
  }

  void rescale() {
    TestExecution execution;
    scales.assign(sources.size(), poison<float>(problem.tokens));
    for (std::size_t i = 0; i < sources.size(); ++i) {
      cpu::inverse_rms(problem, sources[i].data(), scales[i].data(), execution(problem, 1, 1));
    }
  }

  std::vector<DepthSource> list() const {
    std::vector<DepthSource> out;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      out.push_back({sources[i].data(), scales[i].data()});
    }
    return out;
  }
};

/// The same numbers in double.
struct WideCase {
  DepthProblem problem;
  std::vector<Rows<double>> sources;  // closed ones, then the partial
  std::vector<Rows<double>> scales;
  std::vector<Rows<double>> queries;
  std::vector<Rows<double>> grads;

  template <class V>
  explicit WideCase(const CpuCase<V>& in) : problem(in.problem) {
    problem.storage = Storage::fp64;
    for (const Rows<V>& each : in.sources) {
      sources.push_back(to_double(each));
    }
    sources.push_back(to_double(in.partial));
    for (const Rows<double>& each : sources) {
      scales.push_back(zeros<double>(problem.tokens));
      inverse_rms(problem, each.data(), scales.back().data());
    }
    for (std::size_t l = 0; l < in.queries.size(); ++l) {
      queries.push_back(convert<double>(in.queries[l]));
      grads.push_back(convert<double>(in.grads[l]));
    }
  }

  /// The first `count` sources.
  std::vector<DepthSource> list(std::size_t count) const {
    std::vector<DepthSource> out;
    for (std::size_t i = 0; i < count; ++i) {
      out.push_back({sources[i].data(), scales[i].data()});
    }
    return out;
  }
};

}  // namespace plumb::testing

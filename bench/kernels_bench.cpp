// SPDX-License-Identifier: Apache-2.0
#include "kernels_bench.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include "ceilings.hpp"
#include "plumb/kernels/counter_rng.hpp"
#include "plumb/kernels/cpu_operators.hpp"
#include "plumb/kernels/number_formats.hpp"
#include "plumb/kernels/tensor_stride.hpp"

namespace plumb::bench {
namespace {

// Tensors of one shape in one piece of memory, as the block machine and the block store lay them out.
class Tensors {
 public:
  Tensors(int count, std::int64_t tokens, std::int64_t width, Storage storage)
      : stride_bytes_(tensor_stride_bytes(tokens, width, storage)),
        row_bytes_(static_cast<std::size_t>(width) * bytes_per_element(storage)),
        memory_(static_cast<std::size_t>(count) * stride_bytes_) {}

  std::byte* at(int tensor, std::int64_t token) const {
    return memory_.as<std::byte>() + static_cast<std::size_t>(tensor) * stride_bytes_ +
           static_cast<std::size_t>(token) * row_bytes_;
  }
  template <class T>
  T* as(int tensor, std::int64_t token) const {
    return reinterpret_cast<T*>(at(tensor, token));
  }
  void fill(float value) const { std::fill_n(memory_.as<float>(), memory_.bytes() / sizeof(float), value); }

 private:
  std::size_t stride_bytes_;
  std::size_t row_bytes_;
  Lines memory_;
};

// Operands of one format; reused by all operators.
struct Operands {
  Operands(const KernelsRequest& request, Storage storage)
      : sources(request.num_sources + 1, request.tokens, request.width, storage),
        mixtures(request.num_queries, request.tokens, request.width, storage),
        gradients(request.num_queries, request.tokens, request.width, Storage::fp32),
        accumulators(request.num_sources + 1, request.tokens, request.width, Storage::fp32),
        scales(request.num_sources + 1, request.tokens, 1, Storage::fp32),
        lse(request.num_queries, request.tokens, 1, Storage::fp32),
        delta(request.num_queries, request.tokens, 1, Storage::fp32),
        queries(request.num_queries, 1, request.width, Storage::fp32),
        query_sums(request.num_queries, num_token_runs(request.tokens), request.width, Storage::fp32),
        weights(1, request.tokens, std::int64_t{request.num_sources} * request.num_queries, Storage::fp32) {
    for (int i = 0; i <= request.num_sources; ++i) {
      fill(i, request.tokens * request.width, storage);
    }
    scales.fill(1.0f);
    lse.fill(2.0f);
    queries.fill(0.01f);
    weights.fill(0.1f);
  }

  Tensors sources;
  Tensors mixtures;
  Tensors gradients;
  Tensors accumulators;
  Tensors scales;
  Tensors lse;
  Tensors delta;
  Tensors queries;
  Tensors query_sums;
  Tensors weights;

 private:
  void fill(int source, std::int64_t count, Storage storage) const {
    std::byte* const rows = sources.at(source, 0);
    for (std::int64_t k = 0; k < count; ++k) {
      const auto mixed =
          (static_cast<std::uint64_t>(k) + (1 + static_cast<std::uint64_t>(source)) * 0x9e3779b97f4a7c15u) *
          0xbf58476d1ce4e5b9u;
      const float value = static_cast<float>(static_cast<std::int32_t>(mixed >> 32)) * 0x1p-31f;
      if (storage == Storage::bf16) {
        reinterpret_cast<Bf16*>(rows)[k] = to_bf16(value);
      } else if (storage == Storage::fp16) {
        reinterpret_cast<Fp16*>(rows)[k] = to_fp16(value);
      } else {
        reinterpret_cast<float*>(rows)[k] = value;
      }
    }
  }
};

using RunChunk = std::function<void(const DepthProblem& chunk, std::int64_t token, const cpu::Execution& execution)>;

struct Operator {
  std::string name;
  double bytes;  // per token
  double flops;  // per token
  bool reads_mostly = false;
  bool in_runs = false;  // sums over runs of tokens: chunks hold one for each thread
  RunChunk run;
};

std::vector<DepthSource> sources_at(const Operands& of, int count, std::int64_t token) {
  std::vector<DepthSource> out;
  for (int i = 0; i < count; ++i) {
    out.push_back({of.sources.at(i, token), of.scales.at(i, token)});
  }
  return out;
}

std::vector<DepthSourceGradient> gradients_at(const Operands& of, int count, std::int64_t token) {
  std::vector<DepthSourceGradient> out;
  for (int i = 0; i < count; ++i) {
    out.push_back({{of.sources.at(i, token), of.scales.at(i, token)}, of.accumulators.at(i, token), true});
  }
  return out;
}

std::vector<Operator> operators(const KernelsRequest& request, const Operands& of, Storage storage) {
  const int n = request.num_sources;
  const int queries = request.num_queries;
  const auto d = static_cast<double>(request.width);
  const auto e = static_cast<double>(bytes_per_element(storage));
  const double sources = n;
  const double readers = queries;
  std::vector<Operator> out;
  out.push_back({"merge", 5 * d * e, 12 * d, false, false,
                 [&of, n](const DepthProblem& chunk, std::int64_t token, const cpu::Execution& execution) {
                   const DepthSource partial{of.sources.at(0, token), nullptr};
                   MergeForward args;
                   args.o = of.sources.at(n, token);
                   args.lse_in = of.lse.at(0, token);
                   args.later = {&partial, 1};
                   args.query = of.queries.at(0, 0);
                   args.h = of.mixtures.at(0, token);
                   args.output = of.sources.at(1, token);
                   args.partial_out = of.sources.at(0, token);
                   args.norm = {of.queries.at(0, 0), 1e-6};
                   cpu::merge_forward(chunk, args, execution);
                 }});
  const auto aggregate = [&of](int count) {
    return [&of, count](const DepthProblem& chunk, std::int64_t token, const cpu::Execution& execution) {
      const auto list = sources_at(of, count, token);
      cpu::aggregate_forward(chunk, {list, of.queries.at(0, 0), of.mixtures.at(0, token)}, execution);
    };
  };
  out.push_back({"direct", (sources + 1) * d * e, 4 * sources * d, true, false, aggregate(n)});
  out.push_back({"weighted-sum", (sources + readers) * d * e + 4 * sources * readers, 2 * sources * readers * d, false,
                 false,
                 [&of, n, queries](const DepthProblem& chunk, std::int64_t token, const cpu::Execution& execution) {
                   std::vector<const void*> values;
                   std::vector<void*> mixtures;
                   for (int i = 0; i < n; ++i) {
                     values.push_back(of.sources.at(i, token));
                   }
                   for (int l = 0; l < queries; ++l) {
                     mixtures.push_back(of.mixtures.at(l, token));
                   }
                   cpu::weighted_sum(chunk, {values, of.weights.at(0, token), mixtures}, execution);
                 }});
  out.push_back({"phase-1", (sources + readers) * d * e, sources * (4 * readers + 2) * d, false, false,
                 [&of, n, queries](const DepthProblem& chunk, std::int64_t token, const cpu::Execution& execution) {
                   auto list = sources_at(of, n, token);
                   for (DepthSource& each : list) {
                     each.inverse_rms = nullptr;  // taken here
                   }
                   std::vector<PhaseOneQuery> all;
                   for (int l = 0; l < queries; ++l) {
                     all.push_back({of.queries.at(l, 0), of.mixtures.at(l, token), of.lse.at(l, token)});
                   }
                   cpu::phase_one_forward(chunk, {list, all}, execution);
                 }});
  out.push_back({"backward-merge", (4 + e + 4 + 8) * d, 16 * d, false, true,
                 [&of, queries](const DepthProblem& chunk, std::int64_t token, const cpu::Execution& execution) {
                   const DepthSource partial{of.sources.at(0, token), nullptr};
                   MergeBackward args;
                   args.o = of.gradients.at(0, token);
                   args.lse_in = of.lse.at(0, token);
                   args.later = {&partial, 1};
                   args.query = of.queries.at(0, 0);
                   args.grad_h = of.gradients.at(queries - 1, token);
                   args.lse = of.lse.at(0, token);
                   args.delta = of.delta.at(0, token);
                   args.grad_partial = of.accumulators.at(0, token);
                   args.query_sums = of.query_sums.at(0, 0);
                   cpu::merge_backward(chunk, args, execution);
                 }});
  out.push_back({"backward-inter", (sources * (e + 4) + 4 * readers) * d, 10 * sources * readers * d, false, true,
                 [&of, n, queries](const DepthProblem& chunk, std::int64_t token, const cpu::Execution& execution) {
                   const auto list = gradients_at(of, n, token);
                   std::vector<InterBlockReader> all;
                   for (int l = 0; l < queries; ++l) {
                     all.push_back({of.queries.at(l, 0), of.gradients.at(l, token), of.lse.at(l, token),
                                    of.delta.at(l, token), of.query_sums.at(l, 0), false});
                   }
                   cpu::inter_block_backward(chunk, {list, all}, execution);
                 }});
  out.push_back({"aggregate", (sources + 2) * d * e, 4 * (sources + 1) * d, true, false, aggregate(n + 1)});
  out.push_back({"backward-aggregate", ((sources + 1) * (e + 4) + 4) * d, 12 * (sources + 1) * d, false, true,
                 [&of, n](const DepthProblem& chunk, std::int64_t token, const cpu::Execution& execution) {
                   const auto list = gradients_at(of, n + 1, token);
                   cpu::aggregate_backward(
                       chunk, {list, of.queries.at(0, 0), of.gradients.at(0, token), of.query_sums.at(0, 0)},
                       execution);
                 }});
  return out;
}

// Sum over chunks of each chunk's fastest repetition, in seconds. Every repetition passes over all chunks, so that a
// chunk finds the caches as the others left them.
double fastest(const KernelsRequest& request, Storage storage, const Operator& op, cpu::CpuThreads& threads,
               Ceilings& ceilings) {
  const DepthProblem problem{request.tokens, request.width, storage, 1e-6};
  const Lines workspace(
      cpu::workspace_bytes(problem, request.num_sources + 1, request.num_queries, threads.num_threads()));
  const cpu::Execution execution{
      {workspace.as<std::byte>(), workspace.bytes()}, &threads, cpu::best_isa(), 0};  // as for the whole tensor
  const std::int64_t chunk = (op.in_runs ? kTokensPerRun : 64) * threads.num_threads();
  std::vector<double> best(static_cast<std::size_t>((request.tokens + chunk - 1) / chunk),
                           std::numeric_limits<double>::infinity());
  for (int repetition = 0; repetition < request.repetitions; ++repetition) {
    for (std::size_t k = 0; k < best.size(); ++k) {
      const std::int64_t token = static_cast<std::int64_t>(k) * chunk;
      DepthProblem part = problem;
      part.tokens = std::min(chunk, request.tokens - token);
      const double start = now_seconds(threads);
      op.run(part, token, execution);
      best[k] = std::min(best[k], now_seconds(threads) - start);
    }
    ceilings.measure();
  }
  double total = 0;
  for (const double each : best)
    total += each;
  return total;
}

}  // namespace

double KernelResult::bound_us() const {
  return 1e6 * std::max(bytes / stream_bytes_per_second, flops / flops_per_second);
}
double KernelResult::share_of_roofline() const { return bound_us() / time_us; }

const std::vector<std::string>& kernel_names() {
  static const std::vector<std::string> names = {
      "merge",          "direct",         "weighted-sum", "phase-1",
      "backward-merge", "backward-inter", "aggregate",    "backward-aggregate"};
  return names;
}

std::vector<KernelResult> measure_kernels(const KernelsRequest& request) {
  std::vector<KernelResult> results;
  for (const Storage storage : request.formats) {
    const Operands operands(request, storage);
    for (const int num_threads : request.threads) {
      cpu::CpuThreads threads(num_threads);
      const Pinned pinned(threads);
      Ceilings ceilings(threads);
      const std::size_t first = results.size();
      const auto tokens = static_cast<double>(request.tokens);
      for (const Operator& op : operators(request, operands, storage)) {
        if (!request.only.empty() && request.only != op.name) continue;
        const double seconds = fastest(request, storage, op, threads, ceilings);
        const bool single = op.name == "merge" || op.name == "backward-merge";
        const bool at_head = op.name == "aggregate" || op.name == "backward-aggregate";
        const bool batched = op.name == "weighted-sum" || op.name == "phase-1" || op.name == "backward-inter";
        results.push_back({.name = op.name,
                           .storage = storage,
                           .tokens = request.tokens,
                           .width = request.width,
                           .num_sources = single ? 2 : request.num_sources + (at_head ? 1 : 0),
                           .num_queries = batched ? request.num_queries : 1,
                           .threads = num_threads,
                           .time_us = seconds * 1e6,
                           .bytes = op.bytes * tokens,
                           .flops = op.flops * tokens,
                           .stream_bytes_per_second = op.reads_mostly ? 1.0 : 0.0,
                           .flops_per_second = 0});
      }
      for (std::size_t k = first; k < results.size(); ++k) {
        KernelResult& own = results[k];
        own.stream_bytes_per_second =
            own.stream_bytes_per_second > 0 ? ceilings.read_bytes_per_second() : ceilings.copy_bytes_per_second();
        own.flops_per_second = ceilings.flops_per_second();
      }
    }
  }
  for (KernelResult& own : results) {
    const auto alone = std::find_if(results.begin(), results.end(), [&](const KernelResult& each) {
      return each.threads == 1 && each.name == own.name && each.storage == own.storage;
    });
    if (own.threads == 1 || alone == results.end()) continue;
    own.gain = alone->time_us / own.time_us;
    own.bound_gain = alone->bound_us() / own.bound_us();
  }
  return results;
}

}  // namespace plumb::bench

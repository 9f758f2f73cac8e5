// SPDX-License-Identifier: Apache-2.0
#include "kernels_bench.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include "ceilings.hpp"
#include "plumb/kernels/counter_rng.hpp"
#include "plumb/kernels/cpu_operators.hpp"
#include "plumb/kernels/number_formats.hpp"

namespace plumb::bench {
namespace {

// Tensors of one format; reused by all operators.
class Operands {
 public:
  Operands(const KernelsRequest& request, Storage storage)
      : storage_(storage), tokens_(request.tokens), width_(request.width), element_bytes_(bytes_per_element(storage)) {
    for (int i = 0; i <= request.num_sources; ++i) {
      sources.push_back(values());
      fill(sources.back(), 1 + static_cast<std::uint64_t>(i));
      scales.emplace_back(statistics());
      std::fill_n(scales.back().as<float>(), tokens_, 1.0f);
    }
    for (int l = 0; l < request.num_queries; ++l) {
      queries.emplace_back(static_cast<std::size_t>(width_) * sizeof(float));
      std::fill_n(queries.back().as<float>(), width_, 0.01f);
      mixtures.push_back(gradients());  // large enough for either format
      lse.emplace_back(statistics());
      delta.emplace_back(statistics());
      query_sums.emplace_back(static_cast<std::size_t>(num_token_runs(tokens_) * width_) * sizeof(float));
      std::fill_n(lse.back().as<float>(), tokens_, 2.0f);
    }
    for (int i = 0; i <= request.num_sources; ++i) {
      accumulators.push_back(gradients());
    }
    weights = Lines(static_cast<std::size_t>(tokens_) * static_cast<std::size_t>(request.num_sources) *
                    static_cast<std::size_t>(request.num_queries) * sizeof(float));
    std::fill_n(weights.as<float>(), weights.bytes() / sizeof(float), 0.1f);
  }

  // Rows of values or of gradients from a token on.
  std::byte* at(const Lines& of, std::int64_t token) const {
    return of.as<std::byte>() + static_cast<std::size_t>(token * width_) * element_bytes_;
  }
  float* gradient_at(const Lines& of, std::int64_t token) const { return of.as<float>() + token * width_; }

  std::vector<Lines> sources;
  std::vector<Lines> scales;
  std::vector<Lines> queries;
  std::vector<Lines> mixtures;
  std::vector<Lines> lse;
  std::vector<Lines> delta;
  std::vector<Lines> query_sums;
  std::vector<Lines> accumulators;
  Lines weights{64};

 private:
  Lines values() const { return Lines(static_cast<std::size_t>(tokens_ * width_) * element_bytes_); }
  Lines gradients() const { return Lines(static_cast<std::size_t>(tokens_ * width_) * sizeof(float)); }
  std::size_t statistics() const { return static_cast<std::size_t>(tokens_) * sizeof(float); }

  void fill(const Lines& rows, std::uint64_t seed) const {
    for (std::int64_t k = 0; k < tokens_ * width_; ++k) {
      const auto mixed = (static_cast<std::uint64_t>(k) + seed * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
      const float value = static_cast<float>(static_cast<std::int32_t>(mixed >> 32)) * 0x1p-31f;
      if (storage_ == Storage::bf16) {
        rows.as<Bf16>()[k] = to_bf16(value);
      } else if (storage_ == Storage::fp16) {
        rows.as<Fp16>()[k] = to_fp16(value);
      } else {
        rows.as<float>()[k] = value;
      }
    }
  }

  Storage storage_;
  std::int64_t tokens_;
  std::int64_t width_;
  std::size_t element_bytes_;
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
    const auto k = static_cast<std::size_t>(i);
    out.push_back({of.at(of.sources[k], token), of.scales[k].as<float>() + token});
  }
  return out;
}

std::vector<DepthSourceGradient> gradients_at(const Operands& of, int count, std::int64_t token) {
  std::vector<DepthSourceGradient> out;
  const std::vector<DepthSource> sources = sources_at(of, count, token);
  for (int i = 0; i < count; ++i) {
    const auto k = static_cast<std::size_t>(i);
    out.push_back({sources[k], of.gradient_at(of.accumulators[k], token), true});
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
                   const DepthSource partial{of.at(of.sources[0], token), nullptr};
                   MergeForward args;
                   args.o = of.at(of.sources[static_cast<std::size_t>(n)], token);
                   args.lse_in = of.lse[0].as<float>() + token;
                   args.later = {&partial, 1};
                   args.query = of.queries[0].as<float>();
                   args.h = of.at(of.mixtures[0], token);
                   args.output = of.at(of.sources[1], token);
                   args.partial_out = of.at(of.sources[0], token);
                   args.norm = {of.queries[0].as<float>(), 1e-6};
                   cpu::merge_forward(chunk, args, execution);
                 }});
  const auto aggregate = [&of](int count) {
    return [&of, count](const DepthProblem& chunk, std::int64_t token, const cpu::Execution& execution) {
      const auto list = sources_at(of, count, token);
      cpu::aggregate_forward(chunk, {list, of.queries[0].as<float>(), of.at(of.mixtures[0], token)}, execution);
    };
  };
  out.push_back({"direct", (sources + 1) * d * e, 4 * sources * d, true, false, aggregate(n)});
  out.push_back(
      {"weighted-sum", (sources + readers) * d * e + 4 * sources * readers, 2 * sources * readers * d, false, false,
       [&of, n, queries](const DepthProblem& chunk, std::int64_t token, const cpu::Execution& execution) {
         std::vector<const void*> values;
         std::vector<void*> mixtures;
         for (int i = 0; i < n; ++i) {
           values.push_back(of.at(of.sources[static_cast<std::size_t>(i)], token));
         }
         for (int l = 0; l < queries; ++l) {
           mixtures.push_back(of.at(of.mixtures[static_cast<std::size_t>(l)], token));
         }
         cpu::weighted_sum(chunk, {values, of.weights.as<float>() + token * n * queries, mixtures}, execution);
       }});
  out.push_back(
      {"phase-1", (sources + readers) * d * e, sources * (4 * readers + 2) * d, false, false,
       [&of, n, queries](const DepthProblem& chunk, std::int64_t token, const cpu::Execution& execution) {
         auto list = sources_at(of, n, token);
         for (DepthSource& each : list) {
           each.inverse_rms = nullptr;  // taken here
         }
         std::vector<PhaseOneQuery> all;
         for (int l = 0; l < queries; ++l) {
           const auto k = static_cast<std::size_t>(l);
           all.push_back({of.queries[k].as<float>(), of.at(of.mixtures[k], token), of.lse[k].as<float>() + token});
         }
         cpu::phase_one_forward(chunk, {list, all}, execution);
       }});
  out.push_back({"backward-merge", (4 + e + 4 + 8) * d, 16 * d, false, true,
                 [&of](const DepthProblem& chunk, std::int64_t token, const cpu::Execution& execution) {
                   const DepthSource partial{of.at(of.sources[0], token), nullptr};
                   MergeBackward args;
                   args.o = of.gradient_at(of.mixtures[0], token);
                   args.lse_in = of.lse[0].as<float>() + token;
                   args.later = {&partial, 1};
                   args.query = of.queries[0].as<float>();
                   args.grad_h = of.gradient_at(of.mixtures[1], token);
                   args.lse = of.lse[0].as<float>() + token;
                   args.delta = of.delta[0].as<float>() + token;
                   args.grad_partial = of.gradient_at(of.accumulators[0], token);
                   args.query_sums = of.query_sums[0].as<float>();
                   cpu::merge_backward(chunk, args, execution);
                 }});
  out.push_back({"backward-inter", (sources * (e + 4) + 4 * readers) * d, 10 * sources * readers * d, false, true,
                 [&of, n, queries](const DepthProblem& chunk, std::int64_t token, const cpu::Execution& execution) {
                   const auto list = gradients_at(of, n, token);
                   std::vector<InterBlockReader> all;
                   for (int l = 0; l < queries; ++l) {
                     const auto k = static_cast<std::size_t>(l);
                     all.push_back({of.queries[k].as<float>(), of.gradient_at(of.mixtures[k], token),
                                    of.lse[k].as<float>() + token, of.delta[k].as<float>() + token,
                                    of.query_sums[k].as<float>(), false});
                   }
                   cpu::inter_block_backward(chunk, {list, all}, execution);
                 }});
  out.push_back({"aggregate", (sources + 2) * d * e, 4 * (sources + 1) * d, true, false, aggregate(n + 1)});
  out.push_back({"backward-aggregate", ((sources + 1) * (e + 4) + 4) * d, 12 * (sources + 1) * d, false, true,
                 [&of, n](const DepthProblem& chunk, std::int64_t token, const cpu::Execution& execution) {
                   const auto list = gradients_at(of, n + 1, token);
                   cpu::aggregate_backward(chunk,
                                           {list, of.queries[0].as<float>(), of.gradient_at(of.mixtures[0], token),
                                            of.query_sums[0].as<float>()},
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

double KernelResult::share_of_roofline() const {
  return std::max(bytes / stream_bytes_per_second, flops / flops_per_second) / (time_us * 1e-6);
}

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
  return results;
}

}  // namespace plumb::bench

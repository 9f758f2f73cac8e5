// SPDX-License-Identifier: Apache-2.0
// operators.hpp (private): the operators as sequences of kernel launches, for a GPU or for the simulated blocks alike.
//
// Launch is callable with (kernel, LaunchShape); launches run in order. It says what shared memory a block may
// have, and how many tokens it had best take in turn. V
// is the storage type. Operands have been checked (operand_rules.hpp); pointers are the device's, lists are the host's.
// Nothing is allocated and nothing waits.
#pragma once

#include <algorithm>
#include <functional>
#include <span>

#include "cuda/backward_kernels.hpp"
#include "cuda/tables.hpp"
#include "cuda/tensor_kernels.hpp"
#include "plumb/kernels/cpu_operators.hpp"

namespace plumb::cuda_detail {

/// Whether rows may be accessed 16 bytes at a time: asks for every pointer that a kernel will use.
class Vectorable {
 public:
  explicit Vectorable(std::int64_t width) : yes_(width % kColumns == 0) {}
  Vectorable& operator()(const void* rows) {
    yes_ = yes_ && reinterpret_cast<std::uintptr_t>(rows) % 16 == 0;
    return *this;
  }
  bool yes() const { return yes_; }
  template <class Use>
  void with(const Use& use) const {
    if (yes_) {
      use.template operator()<true>();
    } else {
      use.template operator()<false>();
    }
  }

 private:
  bool yes_;
};

template <class V>
class Operators {
 public:
  template <class Launch>
  static void inverse_rms(Launch& launch, const DepthProblem& problem, const void* block, void* out) {
    Vectorable vector(problem.width);
    vector(block).with([&]<bool kVector>() {
      DotsKernel<V, 1, false, kVector> dots{};
      dots.width = problem.width;
      dots.eps = static_cast<float>(problem.eps);
      dots.num_sources = 1;
      dots.sources[0] = {block, nullptr};
      dots.scale_out[0] = static_cast<float*>(out);
      launch(dots, dots.shape(problem.tokens, problem.width, 1));
    });
  }

  template <class Launch>
  static void add_output(Launch& launch, const DepthProblem& problem, const cpu::AddOutput& args) {
    Vectorable vector(problem.width);
    vector(args.partial)(args.output)(args.out).with([&]<bool kVector>() {
      const AddKernel<V, kVector> add{problem.width,
                                      static_cast<float>(problem.eps),
                                      static_cast<const V*>(args.partial),
                                      static_cast<const V*>(args.output),
                                      static_cast<V*>(args.out),
                                      static_cast<float*>(args.inverse_rms)};
      launch(add, add.shape(problem.tokens, problem.width));
    });
  }

  template <class Launch>
  static void weighted_sum(Launch& launch, const DepthProblem& problem, const cpu::WeightedSum& args) {
    Vectorable vector(problem.width);
    std::for_each(args.sources.begin(), args.sources.end(), std::ref(vector));
    std::for_each(args.out.begin(), args.out.end(), std::ref(vector));
    vector.with([&]<bool kVector>() {
      MixtureKernel<V, V, kVector> mixture{};
      mixture.width = problem.width;
      mixture.num_sources = static_cast<int>(args.sources.size());
      mixture.ld = static_cast<int>(args.out.size());
      mixture.weighted = true;
      std::copy(args.sources.begin(), args.sources.end(), mixture.sources);
      for (std::size_t first = 0; first < args.out.size(); first += kBatch) {
        mixture.num_outputs = static_cast<int>(std::min<std::size_t>(args.out.size() - first, kBatch));
        mixture.table = static_cast<const float*>(args.weights) + first;
        for (int l = 0; l < mixture.num_outputs; ++l) {
          mixture.out[l] = static_cast<V*>(args.out[first + static_cast<std::size_t>(l)]);
        }
        launch(mixture, mixture.shape(problem.tokens, problem.width, mixture.num_sources));
      }
    });
  }

  template <class Launch>
  static void phase_one(Launch& launch, const DepthProblem& problem, const PhaseOneForward& args, void* workspace,
                        bool tensor_cores = false) {
    if (tensor_cores && !args.fp32_mixture && on_tensor_cores(launch, problem, args)) {
      return;
    }
    if (args.fp32_mixture) {
      phase_one_as<float>(launch, problem, args, workspace);
    } else {
      phase_one_as<V>(launch, problem, args, workspace);
    }
  }

  template <class Launch>
  static void aggregate(Launch& launch, const DepthProblem& problem, const AggregateForward& args) {
    Mix mix{.sources = args.sources, .query = args.query, .norm = args.norm, .h = args.h, .lse = args.lse};
    mix_as<V>(launch, problem, mix);
  }

  template <class Launch>
  static void merge(Launch& launch, const DepthProblem& problem, const MergeForward& args) {
    const Mix mix{args.later, args.output, args.partial_out, args.o,      args.lse_in,
                  args.query, args.norm,   args.h,           args.lse_out};
    if (args.fp32_mixture) {
      mix_as<float>(launch, problem, mix);
    } else {
      mix_as<V>(launch, problem, mix);
    }
  }

  template <class Launch>
  static void merge_backward(Launch& launch, const DepthProblem& problem, const MergeBackward& args, void* workspace) {
    const int n = static_cast<int>(args.later.size());
    Tables space(workspace);
    const PairTables tables = take_tables(space, problem.tokens, n, 1);
    float* along = space.take(problem.tokens);
    if (args.o != nullptr) {
      const DepthSource mixture{args.o, nullptr};
      dots<float, 1>(launch, problem, {&mixture, 1}, Reader{nullptr, args.grad_h}, {}, nullptr, nullptr, along);
    }
    if (n > 0) {
      dots<V, 1>(launch, problem, args.later, Reader{args.query, args.grad_h}, {}, tables.scale, tables.p,
                 tables.to_query);
    }
    const TokenCoefficients coefficients{problem.tokens,
                                         problem.width,
                                         n,
                                         tables,
                                         args.o != nullptr ? along : nullptr,
                                         static_cast<const float*>(args.lse_in),
                                         static_cast<const float*>(args.lse),
                                         static_cast<float*>(args.delta)};
    launch(coefficients, coefficients.shape());
    if (args.grad_partial == nullptr) {
      return;
    }
    const DepthSourceGradient last{args.later.back(), args.grad_partial, false};
    const InterBlockReader reader{args.query, args.grad_h,     nullptr,
                                  args.delta, args.query_sums, args.o == nullptr && n == 1};
    update<1>(launch, problem, {&last, 1}, n - 1, n, {&reader, 1}, tables, true);
  }

  template <class Launch>
  static void aggregate_backward(Launch& launch, const DepthProblem& problem, const AggregateBackward& args,
                                 void* workspace) {
    const int n = static_cast<int>(args.sources.size());
    Tables space(workspace);
    const PairTables tables = take_tables(space, problem.tokens, n, 1);
    gradient_dots<1>(launch, problem, args.sources, Reader{args.query, args.grad_h}, {}, tables);
    const TokenCoefficients coefficients{problem.tokens, problem.width, n, tables, nullptr, nullptr, nullptr, nullptr};
    launch(coefficients, coefficients.shape());
    const InterBlockReader reader{args.query, args.grad_h, nullptr, nullptr, args.query_sums, n == 1};
    update<1>(launch, problem, args.sources, 0, n, {&reader, 1}, tables, true);
  }

  template <class Launch>
  static void inter_block_backward(Launch& launch, const DepthProblem& problem, const InterBlockBackward& args,
                                   void* workspace, bool tensor_cores = false) {
    const int n = static_cast<int>(args.sources.size());
    for (std::size_t first = 0; first < args.readers.size(); first += kBatch) {
      const auto readers = args.readers.subspan(first, std::min<std::size_t>(args.readers.size() - first, kBatch));
      const int count = static_cast<int>(readers.size());
      Tables space(workspace);
      const PairTables tables = take_tables(space, problem.tokens, n, count);
      if (!tensor_cores || !dots_on_tensor_cores(launch, problem, args.sources, readers, tables)) {
        gradient_dots<kBatch>(launch, problem, args.sources, Reader{}, readers, tables);
      }
      ReaderCoefficients coefficients{};
      coefficients.pairs = problem.tokens * n;
      coefficients.width = problem.width;
      coefficients.num_sources = n;
      coefficients.num_readers = count;
      coefficients.tables = tables;
      for (int l = 0; l < count; ++l) {
        const InterBlockReader& own = readers[static_cast<std::size_t>(l)];
        coefficients.lse[l] = static_cast<const float*>(own.lse);
        coefficients.delta[l] = static_cast<const float*>(own.delta);
        coefficients.sole[l] = own.sole_source;
      }
      launch(coefficients, coefficients.shape());
      update<kBatch>(launch, problem, args.sources, 0, n, readers, tables, first == 0);
    }
  }

  template <class Launch>
  static void reduce_query_gradient(Launch& launch, const DepthProblem& problem, const QueryReduction& args) {
    const ReduceKernel reduce{num_token_runs(problem.tokens),       problem.width,
                              static_cast<float*>(args.query_sums), static_cast<const float*>(args.query),
                              static_cast<const float*>(args.gain), static_cast<float*>(args.grad_query),
                              static_cast<float*>(args.grad_gain)};
    launch(reduce, reduce.shape());
  }

 private:
  struct Mix {
    std::span<const DepthSource> sources;
    const void* output = nullptr;
    void* partial_out = nullptr;
    const void* prior = nullptr;
    const void* prior_lse = nullptr;
    const void* query = nullptr;
    OutputNorm norm = {};
    void* h = nullptr;
    void* lse = nullptr;
  };

  /// The one reader of a merge or an aggregate.
  struct Reader {
    const void* query = nullptr;
    const void* grad_h = nullptr;
  };

  static PairTables take_tables(Tables& space, std::int64_t tokens, int num_sources, int ld) {
    const std::int64_t pairs = tokens * std::max(num_sources, 1);
    float* scale = space.take(pairs);
    float* to_value = space.take(pairs);
    float* p = space.take(pairs * ld);
    float* to_query = space.take(pairs * ld);
    return {scale, p, to_query, to_value, ld};
  }

  template <class O, class Launch>
  static void phase_one_as(Launch& launch, const DepthProblem& problem, const PhaseOneForward& args, void* workspace) {
    const int n = static_cast<int>(args.sources.size());
    const Vectorable vector = vectorable(problem, args);
    if (vector.yes() && one_launch_per<O, kBatch>(launch, problem, args, ResidentKernel<V, O>{})) {
      return;
    }
    vector.with([&]<bool kVector>() {
      DotsKernel<V, kBatch, false, kVector> dots{};
      MixtureKernel<V, O, kVector> mixture{};
      dots.width = mixture.width = problem.width;
      dots.eps = static_cast<float>(problem.eps);
      dots.num_sources = mixture.num_sources = n;
      for (int i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        dots.sources[i] = source_rows(args.sources[at]);
        dots.scale_out[i] = args.inverse_rms_out.empty() ? nullptr : static_cast<float*>(args.inverse_rms_out[at]);
        mixture.sources[i] = args.sources[at].value;
      }
      for (std::size_t first = 0; first < args.queries.size(); first += kBatch) {
        const int count = static_cast<int>(std::min<std::size_t>(args.queries.size() - first, kBatch));
        dots.ld = mixture.ld = dots.num_queries = mixture.num_outputs = count;
        Tables space(workspace);
        dots.logits = space.take(problem.tokens * n * count);
        mixture.table = dots.logits;
        for (int l = 0; l < count; ++l) {
          const PhaseOneQuery& own = args.queries[first + static_cast<std::size_t>(l)];
          dots.query[l] = static_cast<const float*>(own.query);
          mixture.out[l] = static_cast<O*>(own.o);
          mixture.lse[l] = static_cast<float*>(own.lse);
        }
        launch(dots, dots.shape(problem.tokens, problem.width, n));
        launch(mixture, mixture.shape(problem.tokens, problem.width, n));
      }
    });
  }

  static Vectorable vectorable(const DepthProblem& problem, const PhaseOneForward& args) {
    Vectorable vector(problem.width);
    for (const DepthSource& each : args.sources) {
      vector(each.value);
    }
    for (const PhaseOneQuery& each : args.queries) {
      vector(each.query)(each.o);
    }
    return vector;
  }

  // What ResidentKernel and TensorKernel have in common: one launch per so many queries. False if it cannot be.
  template <class O, int kQueries, class Kernel, class Launch>
  static bool one_launch_per(Launch& launch, const DepthProblem& problem, const PhaseOneForward& args, Kernel kernel) {
    const std::size_t n = args.sources.size();
    kernel.ring = Kernel::ring_in(problem.width, static_cast<int>(n), launch.most_shared_bytes());
    if (kernel.ring.slots == 0) {
      return false;
    }
    kernel.tokens = problem.tokens;
    kernel.width = problem.width;
    kernel.eps = static_cast<float>(problem.eps);
    kernel.turn = launch.tokens_in_turn(problem.tokens);
    for (std::size_t i = 0; i < n; ++i) {
      kernel.sources[i] = source_rows(args.sources[i]);
      kernel.scale_out[i] = args.inverse_rms_out.empty() ? nullptr : static_cast<float*>(args.inverse_rms_out[i]);
    }
    for (std::size_t first = 0; first < args.queries.size(); first += kQueries) {
      kernel.num_queries = static_cast<int>(std::min<std::size_t>(args.queries.size() - first, kQueries));
      for (int l = 0; l < kernel.num_queries; ++l) {
        const PhaseOneQuery& own = args.queries[first + static_cast<std::size_t>(l)];
        kernel.query[l] = static_cast<const float*>(own.query);
        kernel.out[l] = static_cast<O*>(own.o);
        kernel.lse[l] = static_cast<float*>(own.lse);
      }
      launch(kernel, kernel.shape());
    }
    return true;
  }

  template <class Launch>
  static bool on_tensor_cores(Launch& launch, const DepthProblem& problem, const PhaseOneForward& args) {
    if constexpr (sizeof(V) == 2) {
      TensorKernel<V> kernel{};
      kernel.with_squares = some_unknown(args.sources, [](const DepthSource& each) { return each; });
      return vectorable(problem, args).yes() && one_launch_per<V, kTensorRows>(launch, problem, args, kernel);
    } else {
      return false;
    }
  }

  template <class Launch>
  static bool dots_on_tensor_cores(Launch& launch, const DepthProblem& problem,
                                   std::span<const DepthSourceGradient> sources,
                                   std::span<const InterBlockReader> readers, const PairTables& tables) {
    if constexpr (sizeof(V) == 2) {
      Vectorable vector(problem.width);
      for (const DepthSourceGradient& each : sources) {
        vector(each.source.value);
      }
      for (const InterBlockReader& each : readers) {
        vector(each.query)(each.grad_h);
      }
      TensorDotsKernel<V> dots{};
      dots.width = problem.width;
      const int count = static_cast<int>(readers.size());
      if (!vector.yes() || !dots.fit(static_cast<int>(sources.size()), count, launch.most_shared_bytes())) {
        return false;
      }
      dots.tokens = problem.tokens;
      dots.eps = static_cast<float>(problem.eps);
      dots.turn = launch.tokens_in_turn(problem.tokens);
      dots.num_readers = dots.ld = count;
      dots.with_squares = some_unknown(sources, [](const DepthSourceGradient& each) { return each.source; });
      for (std::size_t i = 0; i < sources.size(); ++i) {
        dots.sources[i] = source_rows(sources[i].source);
      }
      for (std::size_t l = 0; l < readers.size(); ++l) {
        dots.query[l] = static_cast<const float*>(readers[l].query);
        dots.grad[l] = static_cast<const float*>(readers[l].grad_h);
      }
      dots.scale = tables.scale;
      dots.logits = tables.p;
      dots.along = tables.to_query;
      launch(dots, dots.shape());
      return true;
    } else {
      return false;
    }
  }

  static SourceRows source_rows(const DepthSource& source) {
    return {source.value, static_cast<const float*>(source.inverse_rms)};
  }
  template <class List, class Source>
  static bool some_unknown(const List& list, const Source& source_of) {
    return std::any_of(list.begin(), list.end(),
                       [&](const auto& each) { return source_of(each).inverse_rms == nullptr; });
  }

  template <class O, class Launch>
  static void mix_as(Launch& launch, const DepthProblem& problem, const Mix& args) {
    Vectorable vector(problem.width);
    for (const DepthSource& each : args.sources) {
      vector(each.value);
    }
    vector(args.output)(args.partial_out)(args.prior)(args.query)(args.norm.gain)(args.h);
    vector.with([&]<bool kVector>() {
      MixKernel<V, O, kVector> mix{};
      mix.width = problem.width;
      mix.eps = static_cast<float>(problem.eps);
      mix.num_sources = static_cast<int>(args.sources.size());
      for (std::size_t i = 0; i < args.sources.size(); ++i) {
        mix.sources[i] = source_rows(args.sources[i]);
      }
      mix.output = static_cast<const V*>(args.output);
      mix.partial_out = static_cast<V*>(args.partial_out);
      mix.prior = static_cast<const O*>(args.prior);
      mix.prior_lse = static_cast<const float*>(args.prior_lse);
      mix.query = static_cast<const float*>(args.query);
      mix.norm_gain = static_cast<const float*>(args.norm.gain);
      mix.norm_eps = static_cast<float>(args.norm.eps);
      mix.h = static_cast<V*>(args.h);
      mix.lse = static_cast<float*>(args.lse);
      launch(mix, mix.shape(problem.tokens, problem.width, mix.num_sources));
    });
  }

  // Products of the sources with `one`, or with all of `readers` where kReaders > 1.
  template <class W, int kReaders, class Launch>
  static void dots(Launch& launch, const DepthProblem& problem, std::span<const DepthSource> sources, const Reader& one,
                   std::span<const InterBlockReader> readers, float* scale, float* logits, float* along) {
    Vectorable vector(problem.width);
    for (const DepthSource& each : sources) {
      vector(each.value);
    }
    vector(one.query)(one.grad_h);
    for (const InterBlockReader& each : readers) {
      vector(each.query)(each.grad_h);
    }
    vector.with([&]<bool kVector>() {
      DotsKernel<W, kReaders, true, kVector> dots{};
      dots.width = problem.width;
      dots.eps = static_cast<float>(problem.eps);
      dots.num_sources = static_cast<int>(sources.size());
      for (std::size_t i = 0; i < sources.size(); ++i) {
        dots.sources[i] = source_rows(sources[i]);
      }
      dots.scale = scale;
      dots.logits = logits;
      dots.along = along;
      if (readers.empty()) {
        dots.num_queries = one.query == nullptr ? 0 : 1;
        dots.num_grads = dots.ld = 1;
        dots.query[0] = static_cast<const float*>(one.query);
        dots.grad[0] = static_cast<const float*>(one.grad_h);
      } else {
        dots.num_queries = dots.num_grads = dots.ld = static_cast<int>(readers.size());
        for (std::size_t l = 0; l < readers.size(); ++l) {
          dots.query[l] = static_cast<const float*>(readers[l].query);
          dots.grad[l] = static_cast<const float*>(readers[l].grad_h);
        }
      }
      launch(dots, dots.shape(problem.tokens, problem.width, dots.num_sources));
    });
  }

  template <int kReaders, class Launch>
  static void gradient_dots(Launch& launch, const DepthProblem& problem, std::span<const DepthSourceGradient> sources,
                            const Reader& one, std::span<const InterBlockReader> readers, const PairTables& tables) {
    DepthSource list[kMostSources];
    for (std::size_t i = 0; i < sources.size(); ++i) {
      list[i] = sources[i].source;
    }
    dots<V, kReaders>(launch, problem, {list, sources.size()}, one, readers, tables.scale, tables.p, tables.to_query);
  }

  // `may_overwrite`: these are the first readers of the call.
  template <int kReaders, class Launch>
  static void update(Launch& launch, const DepthProblem& problem, std::span<const DepthSourceGradient> sources,
                     int table_source, int table_sources, std::span<const InterBlockReader> readers,
                     const PairTables& tables, bool may_overwrite) {
    Vectorable vector(problem.width);
    for (const DepthSourceGradient& each : sources) {
      vector(each.source.value)(each.gradient);
    }
    for (const InterBlockReader& each : readers) {
      vector(each.query)(each.grad_h)(each.query_sums);
    }
    vector.with([&]<bool kVector>() {
      UpdateKernel<V, kReaders, kVector> update{};
      update.tokens = problem.tokens;
      update.width = problem.width;
      update.num_sources = static_cast<int>(sources.size());
      update.table_sources = table_sources;
      update.num_readers = static_cast<int>(readers.size());
      update.tables = tables;
      for (std::size_t i = 0; i < sources.size(); ++i) {
        update.sources[i] = {sources[i].source.value, static_cast<float*>(sources[i].gradient),
                             table_source + static_cast<int>(i), may_overwrite && sources[i].first_touch};
      }
      for (std::size_t l = 0; l < readers.size(); ++l) {
        update.query[l] = static_cast<const float*>(readers[l].query);
        update.grad[l] = static_cast<const float*>(readers[l].grad_h);
        update.query_sums[l] = static_cast<float*>(readers[l].query_sums);
        update.sole[l] = readers[l].sole_source;
      }
      launch(update, update.shape());
    });
  }
};

}  // namespace plumb::cuda_detail

// SPDX-License-Identifier: Apache-2.0
// backward_kernels.hpp (private): bodies of the backward kernels. Symbols as in depth_attention_backward.hpp.
//
// DotsKernel leaves s and u = G . v in two tables [token][source][ld]. A coefficients kernel turns them in place into p
// and ds r, and sums ds s r^2 / d into a third, [token][source]. UpdateKernel then needs no sum across threads: a
// thread owns 4 columns of one run of tokens, for which it forms all gradients of the sources and its columns of dq.
// ReduceKernel joins the runs by the fixed tree of the reference.
#pragma once

#include "cuda/forward_kernels.hpp"
#include "plumb/kernels/depth_attention_backward.hpp"

namespace plumb::cuda_detail {

inline constexpr int kElementThreads = 128;

/// The tables between the kernels of one call.
struct PairTables {
  float* scale;     // [token][source]: r
  float* p;         // in: s
  float* to_query;  // in: u
  float* to_value;
  int ld;
};

/// What one pair of token and source passes on to one reader.
PLUMB_DEVICE void set_pair(const PairTables& tables, std::int64_t at, float p, float ds, float r) {
  tables.p[at] = p;
  tables.to_query[at] = ds * r;
}

/// Several readers, one thread per (token, source). delta and Lambda are known.
struct ReaderCoefficients {
  static constexpr int kThreads = kElementThreads;

  std::int64_t pairs;  // tokens * num_sources
  std::int64_t width;
  int num_sources;
  int num_readers;  // <= kBatch
  PairTables tables;
  const float* lse[kBatch];
  const float* delta[kBatch];
  bool sole[kBatch];

  LaunchShape shape() const { return {(pairs + kThreads - 1) / kThreads, kThreads, 0}; }

  template <class X>
  PLUMB_DEVICE void operator()(X& x) const {
    const std::int64_t pair = x.block() * kThreads + x.thread();
    if (pair >= pairs) {
      return;
    }
    const std::int64_t token = pair / num_sources;
    const float r = tables.scale[pair];
    float along = 0;
    for (int l = 0; l < num_readers; ++l) {
      const std::int64_t at = pair * tables.ld + l;
      if (sole[l]) {
        set_pair(tables, at, 1, 0, 0);
        continue;
      }
      const float s = tables.p[at];
      const float p = x.exp(s - lse[l][token]);
      const float ds = p * (tables.to_query[at] - delta[l][token]);
      along = x.fma(ds, s, along);
      set_pair(tables, at, p, ds, r);
    }
    tables.to_value[pair] = along * r * r / static_cast<float>(width);
  }
};

/// One reader over all its sources (aggregate), or over a mixture and what is younger (merge): one thread per token.
struct TokenCoefficients {
  static constexpr int kThreads = kElementThreads;

  std::int64_t tokens;
  std::int64_t width;
  int num_sources;       // may be 0 with a mixture
  PairTables tables;     // ld == 1
  const float* mixture;  // [token]: G . o, or null
  const float* lse_in;   // of the mixture
  const float* lse;      // Lambda; null: from the logits (aggregate)
  float* delta_out;      // null if not wanted

  LaunchShape shape() const { return {(tokens + kThreads - 1) / kThreads, kThreads, 0}; }

  template <class X>
  PLUMB_DEVICE void operator()(X& x) const {
    const std::int64_t token = x.block() * kThreads + x.thread();
    if (token >= tokens) {
      return;
    }
    const std::int64_t first = token * num_sources;
    if (mixture == nullptr && num_sources == 1) {
      if (delta_out != nullptr) {
        delta_out[token] = tables.to_query[first];
      }
      set_pair(tables, first, 1, 0, 0);
      tables.to_value[first] = 0;
      return;
    }
    const float total = lse != nullptr ? lse[token] : log_sum(x, first);
    float delta = 0;
    if (mixture != nullptr) {
      delta = num_sources == 0 ? mixture[token] : x.exp(lse_in[token] - total) * mixture[token];
    }
    for (int i = 0; i < num_sources; ++i) {
      delta = x.fma(x.exp(tables.p[first + i] - total), tables.to_query[first + i], delta);
    }
    if (delta_out != nullptr) {
      delta_out[token] = delta;
    }
    for (int i = 0; i < num_sources; ++i) {
      const float s = tables.p[first + i];
      const float r = tables.scale[first + i];
      const float p = x.exp(s - total);
      const float ds = p * (tables.to_query[first + i] - delta);
      set_pair(tables, first + i, p, ds, r);
      tables.to_value[first + i] = ds * s * r * r / static_cast<float>(width);
    }
  }

 private:
  template <class X>
  PLUMB_DEVICE float log_sum(X& x, std::int64_t first) const {
    float greatest = tables.p[first];
    for (int i = 1; i < num_sources; ++i) {
      greatest = tables.p[first + i] > greatest ? tables.p[first + i] : greatest;
    }
    float sum = 0;
    for (int i = 0; i < num_sources; ++i) {
      sum += x.exp(tables.p[first + i] - greatest);
    }
    return greatest + x.log(sum);
  }
};

struct GradientRows {
  const void* value;
  float* gradient;
  int table_source;  // its place in the tables
  bool first_touch;
};

// With kVector the rows of a step (one token, up to 8 sources) are copied to shared memory while the step before is
// worked on; every thread copies what it alone will use. Otherwise elements come straight from memory; same bits.
template <class V, int kReaders, bool kVector>
struct UpdateKernel {
  static constexpr int kThreads = 64;
  static constexpr int kOwn = 4;    // columns of a thread
  static constexpr int kGroup = 8;  // sources of a step
  // A thread's words of a step: its columns of G, then of each source, then of each accumulator.
  static constexpr int kValueWords = sizeof(V);
  static constexpr int kValuesAt = 4 * kReaders;

  std::int64_t tokens;
  std::int64_t width;
  int num_sources;    // in `sources`
  int table_sources;  // in the tables
  int num_readers;    // <= kReaders
  PairTables tables;
  GradientRows sources[kMostSources];
  const float* query[kReaders];
  const float* grad[kReaders];
  float* query_sums[kReaders];  // not used by a reader of a sole source
  bool sole[kReaders];

  std::int64_t slices() const { return (width + kOwn * kThreads - 1) / (kOwn * kThreads); }
  LaunchShape shape() const {
    return {num_token_runs(tokens) * slices(), kThreads, kVector ? 8 * step_words() * kThreads : 0};
  }

  template <class X>
  PLUMB_DEVICE void operator()(X& x) const {
    const std::int64_t per_run = (width + kOwn * kThreads - 1) / (kOwn * kThreads);
    const std::int64_t run = x.block() / per_run;
    const std::int64_t j = (x.block() % per_run * kThreads + x.thread()) * kOwn;
    if (j >= width) {
      return;
    }
    float dq[kReaders][kOwn] = {};
    float q[kReaders][kOwn] = {};
    bool all_sole = true;
#pragma unroll
    for (int l = 0; l < kReaders; ++l) {
      if (l < num_readers && !sole[l]) {
        load_own(x, query[l], j, q[l]);
        load_own(x, query_sums[l] + run * width, j, dq[l]);
        all_sole = false;
      }
    }
    const std::int64_t end = (run + 1) * kTokensPerRun < tokens ? (run + 1) * kTokensPerRun : tokens;
    int step = 0;
    start(x, step, run * kTokensPerRun, 0, end, j);
    for (std::int64_t token = run * kTokensPerRun; token < end; ++token) {
      float g[kReaders][kOwn] = {};
      for (int first = 0; first < num_sources; first += kGroup, ++step) {
        const bool last = first + kGroup >= num_sources;
        start(x, step + 1, last ? token + 1 : token, last ? 0 : first + kGroup, end, j);
        if constexpr (kVector) {
          x.template wait_copies<1>();
        }
        if (first == 0) {
#pragma unroll
          for (int l = 0; l < kReaders; ++l) {
            if (l < num_readers) {
              load_step(x, step, 4 * l, grad[l] + token * width, j, g[l]);
            }
          }
        }
        for (int i = first; i < num_sources && i < first + kGroup; ++i) {
          const GradientRows& source = sources[i];
          const std::int64_t pair = token * table_sources + source.table_source;
          float* gradient = source.gradient + token * width;
          float sum[kOwn] = {0, 0, 0, 0};
          float v[kOwn] = {0, 0, 0, 0};
          if (!source.first_touch) {
            load_step(x, step, gradients_at() + 4 * (i - first), gradient, j, sum);
          }
          if (!all_sole) {
            load_step(x, step, kValuesAt + kValueWords * (i - first),
                      static_cast<const V*>(source.value) + token * width, j, v);
            add_scaled(x, -tables.to_value[pair], v, sum);
          }
#pragma unroll
          for (int l = 0; l < kReaders; ++l) {
            if (l < num_readers) {
              add_scaled(x, tables.p[pair * tables.ld + l], g[l], sum);
              if (!sole[l]) {
                const float to_query = tables.to_query[pair * tables.ld + l];
                add_scaled(x, to_query, q[l], sum);
                add_scaled(x, to_query, v, dq[l]);
              }
            }
          }
          store_own(x, gradient, j, sum);
        }
      }
    }
    if constexpr (kVector) {
      x.template wait_copies<0>();
    }
#pragma unroll
    for (int l = 0; l < kReaders; ++l) {
      if (l < num_readers && !sole[l]) {
        store_own(x, query_sums[l] + run * width, j, dq[l]);
      }
    }
  }

 private:
  PLUMB_DEVICE int group_sources() const { return num_sources < kGroup ? num_sources : kGroup; }
  PLUMB_DEVICE int gradients_at() const { return kValuesAt + kValueWords * group_sources(); }
  constexpr int step_words() const {
    return kValuesAt + (kValueWords + 4) * (num_sources < kGroup ? num_sources : kGroup);
  }

  template <class X>
  PLUMB_DEVICE auto memory(X& x) const {
    return x.template shared<std::uint32_t>(0, 2 * step_words() * kThreads);
  }
  // Where the thread's word `word` of a step lies: threads side by side.
  template <int kWords, class X>
  PLUMB_DEVICE int place(X& x, int step, int word) const {
    return (step % 2 * step_words() + word) * kThreads + x.thread() * kWords;
  }

  // Starts copying what a step will use, if there is such a step; always closes a group.
  template <class X>
  PLUMB_DEVICE void start(X& x, int step, std::int64_t token, int first, std::int64_t end, std::int64_t j) const {
    if constexpr (kVector) {
      auto to = memory(x);
      const std::int64_t at = token * width + j;
      if (token < end && first == 0) {
#pragma unroll
        for (int l = 0; l < kReaders; ++l) {
          if (l < num_readers) {
            x.copy16(to, place<4>(x, step, 4 * l), grad[l] + at);
          }
        }
      }
      for (int i = first; token < end && i < num_sources && i < first + kGroup; ++i) {
        const V* value = static_cast<const V*>(sources[i].value) + at;
        const int word = kValuesAt + kValueWords * (i - first);
        if constexpr (kValueWords == 4) {
          x.copy16(to, place<4>(x, step, word), value);
        } else {
          x.copy8(to, place<2>(x, step, word), value);
        }
        if (!sources[i].first_touch) {
          x.copy16(to, place<4>(x, step, gradients_at() + 4 * (i - first)), sources[i].gradient + at);
        }
      }
      x.commit_copies();
    }
  }

  // Own columns of `row`: from the words of the step, or straight from memory.
  template <class X, class T>
  PLUMB_DEVICE void load_step(X& x, int step, int word, const T* row, std::int64_t j, float (&out)[kOwn]) const {
    if constexpr (!kVector) {
      load_own(x, row, j, out);
    } else if constexpr (sizeof(T) == 4) {
      unpack<T>(x, memory(x).get4(place<4>(x, step, word)), out);
    } else {
      const Words2 words = memory(x).get2(place<2>(x, step, word));
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        out[2 * e] = x.widen(T{static_cast<std::uint16_t>(words.w[e] & 0xffffu)});
        out[2 * e + 1] = x.widen(T{static_cast<std::uint16_t>(words.w[e] >> 16)});
      }
    }
  }

  template <class X, class T>
  PLUMB_DEVICE void load_own(X& x, const T* row, std::int64_t j, float (&out)[kOwn]) const {
    if constexpr (!kVector) {
#pragma unroll
      for (int e = 0; e < kOwn; ++e) {
        out[e] = j + e < width ? x.widen(row[j + e]) : 0.0f;
      }
    } else {
      static_assert(sizeof(T) == 4);
      unpack<T>(x, x.load16(row + j), out);
    }
  }

  template <class X>
  PLUMB_DEVICE void store_own(X& x, float* row, std::int64_t j, const float (&in)[kOwn]) const {
    if constexpr (kVector) {
      Words4 words;
#pragma unroll
      for (int e = 0; e < kOwn; ++e) {
        words.w[e] = x.float_to_bits(in[e]);
      }
      x.store16(row + j, words);
    } else {
#pragma unroll
      for (int e = 0; e < kOwn; ++e) {
        if (j + e < width) {
          row[j + e] = in[e];
        }
      }
    }
  }

  template <class X>
  PLUMB_DEVICE static void add_scaled(X& x, float factor, const float (&in)[kOwn], float (&sum)[kOwn]) {
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      sum[e] = x.fma(factor, in[e], sum[e]);
    }
  }
};

/// One thread per column: joins the rows of the runs pairwise, 0+1, 2+3, ..., then 0+2, ..., in place.
struct ReduceKernel {
  static constexpr int kThreads = kElementThreads;

  std::int64_t runs;
  std::int64_t width;
  float* query_sums;
  const float* query;
  const float* gain;
  float* grad_query;
  float* grad_gain;

  LaunchShape shape() const { return {(width + kThreads - 1) / kThreads, kThreads, 0}; }

  template <class X>
  PLUMB_DEVICE void operator()(X& x) const {
    const std::int64_t j = x.block() * kThreads + x.thread();
    if (j >= width) {
      return;
    }
    for (std::int64_t step = 1; step < runs; step *= 2) {
      for (std::int64_t k = 0; k + step < runs; k += 2 * step) {
        query_sums[k * width + j] += query_sums[(k + step) * width + j];
      }
    }
    const float dq = query_sums[j];
    grad_query[j] = x.fma(dq, gain[j], grad_query[j]);
    grad_gain[j] = x.fma(dq, query[j], grad_gain[j]);
  }
};

}  // namespace plumb::cuda_detail

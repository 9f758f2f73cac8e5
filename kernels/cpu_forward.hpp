// SPDX-License-Identifier: Apache-2.0
// cpu_forward.hpp (private): forward operators for lanes L, stored values V and mixtures O (V or float).
#pragma once

#include "cpu_mixtures.hpp"
#include "cpu_rows.hpp"

namespace plumb::kernels_detail {

template <class L, class V>
void inverse_rms_task(const ScaleTask& task, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    task.inverse_rms[t] = inverse_rms_of<L>(row_at<V>(task.block, t, task.shape.width), task.shape);
  }
}

/// sum = partial + f, rounded once; returns the elements of it as stored.
template <class L, class V, class Columns>
[[gnu::always_inline]] inline typename L::F add_some(Columns columns, const V* partial, const V* f, V* sum) {
  const typename L::F exact = L::add(columns.load(partial), columns.load(f));
  columns.store(sum, exact, false);
  return same_type<V, float>() ? exact : columns.load(sum);
}

template <class L, class V>
void add_output_task(const AddTask& task, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = task.shape.width;
  for (std::int64_t t = begin; t < end; ++t) {
    const V* f = row_at<V>(task.output, t, width);
    V* out = row_at<V>(task.out, t, width);
    if (task.partial == nullptr) {
      if (out != f) {
        copy_row<L>(f, out, width);
      }
    } else {
      const V* partial = row_at<V>(task.partial, t, width);
      for_columns<L>(
          0, width, [&](auto columns, std::int64_t j) __attribute__((always_inline)) {
            static_cast<void>(add_some<L>(columns, partial + j, f + j, out + j));
          });
    }
    if (task.inverse_rms != nullptr) {
      task.inverse_rms[t] = inverse_rms_of<L>(out, task.shape);
    }
  }
}

template <class L, class V>
void weighted_sum_task(const WeightedSumTask& task, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = task.shape.width;
  Scratch64 scratch(task.scratch);
  const V** rows = scratch.take<const V*>(task.num_sources);
  V** out = scratch.take<V*>(task.num_outputs);
  for (std::int64_t t = begin; t < end; ++t) {
    for (int i = 0; i < task.num_sources; ++i) {
      rows[i] = row_at<V>(task.sources[i], t, width);
    }
    for (int g = 0; g < task.num_outputs; ++g) {
      out[g] = row_at<V>(task.out[g], t, width);
    }
    mix_rows<L, V, V>(rows, task.num_sources, task.weights + t * task.num_sources * task.stride, task.stride, out,
                      task.num_outputs, width, task.stream, {width, 1});
  }
  L::fence();
}

inline std::size_t weighted_sum_scratch_bytes(std::int64_t num_sources, std::int64_t num_outputs) {
  return Scratch64::bytes<void*>(num_sources) + Scratch64::bytes<void*>(num_outputs);
}

/// 1/rms of one source at one token: as stored, or computed and handed on.
template <class L, class V>
[[gnu::always_inline]] inline float scale_of(const DepthSource& source, const V* v, std::int64_t token,
                                             const TaskShape& shape, void* out) {
  if (source.inverse_rms != nullptr) {
    return static_cast<const float*>(source.inverse_rms)[token];
  }
  const float scale = inverse_rms_of<L>(v, shape);
  if (out != nullptr) {
    static_cast<float*>(out)[token] = scale;
  }
  return scale;
}

/// 1/rms of one source at one token: as stored, or from its squares and handed on.
[[gnu::always_inline]] inline float scale_from(const DepthSource& source, float squares, std::int64_t token,
                                               const TaskShape& shape, void* out) {
  if (source.inverse_rms != nullptr) {
    return static_cast<const float*>(source.inverse_rms)[token];
  }
  const float scale = inverse_rms_of(squares, shape);
  if (out != nullptr) {
    static_cast<float*>(out)[token] = scale;
  }
  return scale;
}

/// Scores a tile of tokens for all queries, then mixes token by token while its rows are near. Half of the next tile's
/// rows is brought during each.
template <class L, class V, class O>
void phase_one_task(const PhaseOneTask& task, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = task.shape.width;
  const std::int64_t n = task.num_sources;
  const std::int64_t ld = padded(task.num_queries);
  const std::int64_t tile = tokens_per_tile(n * width * static_cast<std::int64_t>(sizeof(V)), kMostTokensPerTile);
  Scratch64 scratch(task.scratch);
  const V** rows = scratch.take<const V*>(tile * n);
  float* scale = scratch.take<float>(tile * n);
  float* s = scratch.take<float>(tile * n * ld);
  float* greatest = scratch.take<float>(ld);
  float* sum = scratch.take<float>(ld);
  const float** queries = scratch.take<const float*>(task.num_queries);
  O** out = scratch.take<O*>(task.num_queries);
  int num_out = 0;
  bool scaled = true;  // all 1/rms are known
  for (std::int64_t i = 0; i < n; ++i) {
    scaled = scaled && task.sources[i].inverse_rms != nullptr;
  }
  for (int g = 0; g < task.num_queries; ++g) {
    queries[g] = static_cast<const float*>(task.queries[g].query);
    num_out += task.queries[g].o != nullptr ? 1 : 0;
  }
  for (std::int64_t first = begin; first < end; first += tile) {
    const std::int64_t tokens = end - first < tile ? end - first : tile;
    for (std::int64_t k = 0; k < tokens; ++k) {
      for (std::int64_t i = 0; i < n; ++i) {
        rows[k * n + i] = row_at<V>(task.sources[i].value, first + k, width);
      }
    }
    dots<L, V>(rows, tokens * n, queries, task.num_queries, width, s, ld, {tile * width, nullptr},
               scaled ? nullptr : scale);
    for (std::int64_t k = 0; k < tokens; ++k) {
      for (std::int64_t i = 0; i < n; ++i) {
        scale[k * n + i] = scale_from(task.sources[i], scale[k * n + i], first + k, task.shape,
                                      task.inverse_rms_out == nullptr ? nullptr : task.inverse_rms_out[i]);
      }
    }
    scale_rows<L>(s, tokens * n, ld, scale);
    for (std::int64_t k = 0; k < tokens; ++k) {
      const std::int64_t t = first + k;
      float* p = s + k * n * ld;
      if (n == 1) {  // a sole source is its own mixture, its log sum the logit: no exponential
        for (int g = 0; g < task.num_queries; ++g) {
          static_cast<float*>(task.queries[g].lse)[t] = p[g];
          if (task.queries[g].o != nullptr) {
            copy_row<L>(rows[k], row_at<O>(task.queries[g].o, t, width), width);
          }
        }
        continue;
      }
      softmax<L>(p, n, ld, greatest, sum);
      for (int g = 0; g < task.num_queries; ++g) {
        static_cast<float*>(task.queries[g].lse)[t] = greatest[g] + __builtin_logf(sum[g]);
      }
      if (num_out == task.num_queries) {
        for (int g = 0; g < num_out; ++g) {
          out[g] = row_at<O>(task.queries[g].o, t, width);
        }
        mix_rows<L, V, O>(rows + k * n, n, p, ld, out, num_out, width, task.stream, {tile * width + width / 2, 2});
        continue;
      }
      for (int g = 0; g < task.num_queries; ++g) {
        if (task.queries[g].o != nullptr) {
          out[0] = row_at<O>(task.queries[g].o, t, width);
          mix_rows<L, V, O>(rows + k * n, n, p + g, ld, out, 1, width, task.stream, {});
        }
      }
    }
  }
  L::fence();
}

/// Enough for up to num_sources sources, whatever the tile: a tile of few sources holds more tokens.
inline std::size_t phase_one_scratch_bytes(std::int64_t width, std::int64_t value_bytes, std::int64_t num_sources,
                                           std::int64_t num_queries) {
  const std::int64_t limit = kMostTokensPerTile * num_sources;
  const std::int64_t rows = tokens_per_tile(width * value_bytes, limit);
  const std::int64_t pairs = rows > num_sources ? rows : num_sources;
  const std::int64_t ld = padded(num_queries);
  return Scratch64::bytes<void*>(pairs) + Scratch64::bytes<float>(pairs) + Scratch64::bytes<float>(pairs * ld) +
         2 * Scratch64::bytes<float>(ld) + 2 * Scratch64::bytes<void*>(num_queries);
}

/// 1 / (1 + exp(-x)); for large |x| the exponential goes to zero, never to infinity.
[[gnu::always_inline]] inline float sigmoid_of(float x) {
  const float e = __builtin_expf(-__builtin_fabsf(x));
  return (x >= 0 ? 1.0f : e) / (1.0f + e);
}

struct Mixed {
  float weight;  // of the partial
  float rest;    // of the mixture so far
  float lse;
};

/// Joins a logit with a log sum. Both weights keep their digits; an empty mixture has none.
[[gnu::always_inline]] inline Mixed join(float lse, float s) {
  if (lse == -__builtin_inff()) {
    return {1.0f, 0.0f, s};
  }
  const float x = s - lse;
  const float larger = x > 0 ? s : lse;
  return {sigmoid_of(x), sigmoid_of(-x), larger + __builtin_log1pf(__builtin_expf(-__builtin_fabsf(x)))};
}

/// The factor of the output norm: (|h|^2 / width + eps)^(-1/2).
[[gnu::always_inline]] inline float norm_factor(float squares, const MixTask& task) {
  return 1.0f / __builtin_sqrtf(squares / static_cast<float>(task.shape.width) + task.norm_eps);
}

/// Sums over a row that a merge needs.
struct MergeSums {
  float pp = 0;
  float qp = 0;
  float oo = 0;
  float op = 0;
};

/// First pass of a merge: forms the partial, then scores it as stored.
template <class L, class V, class O, bool kAdd, bool kNorm>
[[gnu::always_inline]] inline MergeSums merge_sums(const V* partial, const V* f, V* sum, const O* o, const float* query,
                                                   std::int64_t width) {
  using F = typename L::F;
  F total[4] = {L::zero(), L::zero(), L::zero(), L::zero()};
  for (std::int64_t begin = 0; begin < width; begin += kSegment) {
    const std::int64_t end = width - begin < kSegment ? width : begin + kSegment;
    F pp = L::zero();
    F qp = L::zero();
    F oo = L::zero();
    F op = L::zero();
    for_columns<L>(
        begin, end, [&](auto columns, std::int64_t j) __attribute__((always_inline)) {
          const F v = kAdd ? add_some<L>(columns, partial + j, f + j, sum + j) : columns.load(partial + j);
          pp = L::fma(v, v, pp);
          qp = L::fma(v, columns.load(query + j), qp);
          if constexpr (kNorm) {
            const F u = columns.load(o + j);
            oo = L::fma(u, u, oo);
            op = L::fma(u, v, op);
          } else {
            L::prefetch(o + j);
          }
          L::prefetch(o + width + j);  // half of the next token's rows; the other half comes in the second pass
          if constexpr (kAdd) {
            L::prefetch(f + width + j);
          }
        });
    total[0] = L::add(total[0], pp);
    total[1] = L::add(total[1], qp);
    total[2] = L::add(total[2], oo);
    total[3] = L::add(total[3], op);
  }
  return {L::sum(total[0]), L::sum(total[1]), L::sum(total[2]), L::sum(total[3])};
}

/// |rest o + weight v|^2 row by row, for the few tokens where the identity of the four sums cancels.
template <class L, class V, class O>
float squares_of_mixture(const O* o, const V* v, float rest, float weight, std::int64_t width) {
  typename L::F sum = L::zero();
  for (std::int64_t j = 0; j < width; j += kWide) {
    const std::int64_t count = width - j;
    const typename L::F x =
        L::fma(L::set(weight), load_some<L>(v + j, count), L::mul(L::set(rest), load_some<L>(o + j, count)));
    sum = L::fma(x, x, sum);
  }
  return L::sum(sum);
}

/// One open partial joins a mixture: two passes over the rows, the second of which finds them in the cache.
template <class L, class V, class O, bool kAdd, bool kNorm>
void merge_tokens(const MixTask& task, std::int64_t begin, std::int64_t end) {
  using F = typename L::F;
  const std::int64_t width = task.shape.width;
  const DepthSource& source = task.sources[0];
  for (std::int64_t t = begin; t < end; ++t) {
    const O* o = row_at<O>(task.prior, t, width);
    const V* before = row_at<V>(source.value, t, width);
    const V* f = kAdd ? row_at<V>(task.output, t, width) : nullptr;
    V* sum = kAdd ? row_at<V>(task.partial_out, t, width) : nullptr;
    const MergeSums sums = merge_sums<L, V, O, kAdd, kNorm>(before, f, sum, o, task.query, width);
    const V* v = kAdd ? sum : before;
    const float scale = kAdd || source.inverse_rms == nullptr
                            ? 1.0f / __builtin_sqrtf(sums.pp / static_cast<float>(width) + task.shape.eps)
                            : static_cast<const float*>(source.inverse_rms)[t];
    const Mixed mixed = join(task.prior_lse[t], scale * sums.qp);
    if (task.lse != nullptr) {
      task.lse[t] = mixed.lse;
    }
    float factor = 1;
    if constexpr (kNorm) {
      const float parts = mixed.rest * mixed.rest * sums.oo + mixed.weight * mixed.weight * sums.pp;
      float squares = parts + 2 * mixed.weight * mixed.rest * sums.op;
      if (!(squares >= parts * 0x1p-8f)) {
        squares = squares_of_mixture<L>(o, v, mixed.rest, mixed.weight, width);
      }
      factor = norm_factor(squares, task);
    }
    V* h = row_at<V>(task.h, t, width);
    const F weight = L::set(mixed.weight * factor);
    const F rest = L::set(mixed.rest * factor);
    const bool empty = mixed.rest == 0 && task.prior_lse[t] == -__builtin_inff();
    const float* const gain = task.norm_gain;
    const bool stream = task.stream;
    for_columns<L>(
        0, width, [&](auto columns, std::int64_t j) __attribute__((always_inline)) {
          L::prefetch(before + width + j);
          const F part = empty ? L::zero() : L::mul(rest, columns.load(o + j));
          F x = L::fma(weight, columns.load(v + j), part);
          if constexpr (kNorm) {
            x = L::mul(x, columns.load(gain + j));
          }
          columns.store(h + j, x, stream);
        });
  }
}

/// Any number of sources, with or without a mixture to join and a norm behind.
template <class L, class V, class O>
void mix_tokens(const MixTask& task, std::int64_t begin, std::int64_t end) {
  using F = typename L::F;
  const std::int64_t width = task.shape.width;
  const std::int64_t n = task.num_sources;
  const bool has_prior = task.prior != nullptr;
  Scratch64 scratch(task.scratch);
  const V** rows = scratch.take<const V*>(n);
  float* s = scratch.take<float>((n + 1) * kWide);
  float* greatest = scratch.take<float>(kWide);
  float* sum = scratch.take<float>(kWide);
  float* mixture = scratch.take<float>(width);
  for (std::int64_t t = begin; t < end; ++t) {
    for (std::int64_t i = 0; i < n; ++i) {
      rows[i] = row_at<V>(task.sources[i].value, t, width);
    }
    if (task.output != nullptr) {
      const V* f = row_at<V>(task.output, t, width);
      V* out = row_at<V>(task.partial_out, t, width);
      const V* partial = rows[n - 1];
      for_columns<L>(
          0, width, [&](auto columns, std::int64_t j) __attribute__((always_inline)) {
            static_cast<void>(add_some<L>(columns, partial + j, f + j, out + j));
          });
      rows[n - 1] = out;
    }
    const bool sole = n == 1 && !has_prior;
    float lse = 0;
    if (!sole || task.lse != nullptr) {
      dots<L, V>(rows, n, &task.query, 1, width, s, kWide, {width, nullptr});
      for (std::int64_t i = 0; i < n; ++i) {
        const bool formed = task.output != nullptr && i == n - 1;
        s[i * kWide] *= formed ? inverse_rms_of<L>(rows[i], task.shape)
                               : scale_of<L>(task.sources[i], rows[i], t, task.shape, nullptr);
      }
      lse = s[0];
    }
    if (!sole) {
      if (has_prior) {
        L::store(s + n * kWide, L::zero());
        s[n * kWide] = task.prior_lse[t];
      }
      softmax<L>(s, n + (has_prior ? 1 : 0), kWide, greatest, sum);
      lse = greatest[0] + __builtin_logf(sum[0]);
    }
    if (task.lse != nullptr) {
      task.lse[t] = lse;
    }
    if (task.h == nullptr) {
      continue;
    }
    V* h = row_at<V>(task.h, t, width);
    if (sole && task.norm_gain == nullptr) {
      copy_row<L>(rows[0], h, width);
      continue;
    }
    if (sole) {
      s[0] = 1;
    }
    if (!has_prior && task.norm_gain == nullptr) {
      mix_rows<L, V, V>(rows, n, s, kWide, &h, 1, width, task.stream, {width + width / 2, 2});
      continue;
    }
    mix_rows<L, V, float>(rows, n, s, kWide, &mixture, 1, width, false, {width + width / 2, 2});
    const bool joins = has_prior && task.prior_lse[t] != -__builtin_inff();
    F squares = L::zero();
    for (std::int64_t j = 0; j < width; j += kWide) {
      const std::int64_t count = width - j;
      F x = load_some<L>(mixture + j, count);
      if (joins) {
        x = L::fma(L::set(s[n * kWide]), load_some<L>(row_at<O>(task.prior, t, width) + j, count), x);
      }
      squares = L::fma(x, x, squares);
      if (task.norm_gain == nullptr) {
        store_some<L>(h + j, x, count, task.stream);
      } else {
        store_some<L>(mixture + j, x, count, false);
      }
    }
    if (task.norm_gain != nullptr) {
      const F factor = L::set(norm_factor(L::sum(squares), task));
      for (std::int64_t j = 0; j < width; j += kWide) {
        const std::int64_t count = width - j;
        const F x = L::mul(load_some<L>(mixture + j, count), factor);
        store_some<L>(h + j, L::mul(x, load_some<L>(task.norm_gain + j, count)), count, task.stream);
      }
    }
  }
}

inline std::size_t mix_scratch_bytes(std::int64_t width, std::int64_t num_sources) {
  return Scratch64::bytes<void*>(num_sources) + Scratch64::bytes<float>((num_sources + 1) * kWide) +
         2 * Scratch64::bytes<float>(kWide) + Scratch64::bytes<float>(width);
}

template <class L, class V, class O>
void mix_task(const MixTask& task, std::int64_t begin, std::int64_t end) {
  const bool merges = task.prior != nullptr && task.num_sources == 1 && task.h != nullptr;
  const bool adds = task.output != nullptr;
  const bool norms = task.norm_gain != nullptr;
  if (!merges) {
    mix_tokens<L, V, O>(task, begin, end);
  } else if (adds && norms) {
    merge_tokens<L, V, O, true, true>(task, begin, end);
  } else if (adds) {
    merge_tokens<L, V, O, true, false>(task, begin, end);
  } else if (norms) {
    merge_tokens<L, V, O, false, true>(task, begin, end);
  } else {
    merge_tokens<L, V, O, false, false>(task, begin, end);
  }
  L::fence();
}

}  // namespace plumb::kernels_detail

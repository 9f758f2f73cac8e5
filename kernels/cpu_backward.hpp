// SPDX-License-Identifier: Apache-2.0
// cpu_backward.hpp (private): backward of a merge and of a direct aggregate, row by row, for lanes L and values V.
//
// Symbols as in depth_attention_backward.hpp. dq is added to the row of its token's run, in token order.
#pragma once

#include "cpu_forward.hpp"

namespace plumb::kernels_detail {

/// What one (source, query) pair passes on: dv += p G + to_query q - to_value v, dq += to_query v.
struct PairGradient {
  float p = 0;
  float to_query = 0;  // ds r
  float to_value = 0;  // ds s r^2 / d
};

/// A sole source has p = 1 and ds = 0, exactly.
inline constexpr PairGradient kSole{1, 0, 0};

[[gnu::always_inline]] inline PairGradient pair_gradient(float p, float u, float delta, float s, float r,
                                                         std::int64_t width) {
  const float to_query = p * (u - delta) * r;
  return {p, to_query, to_query * s * r / static_cast<float>(width)};
}

/// How a gradient takes what is added to it.
enum class Touch { add, overwrite, overwrite_past_caches };

[[gnu::always_inline]] inline Touch touch_of(bool first_touch, bool stream) {
  return !first_touch ? Touch::add : stream ? Touch::overwrite_past_caches : Touch::overwrite;
}

/// dv and dq of R sources at one token in one pass over the row.
template <class L, class V, int R, Touch kTouch>
void add_pairs(const PairGradient* pair, const V* const* v, float* const* dv, const float* query, const float* grad_h,
               float* query_sum, std::int64_t width, const float* ahead) {
  using F = typename L::F;
  F p[R];
  F to_query[R];
  F to_value[R];
  const V* from[R];
  float* to[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    p[r] = L::set(pair[r].p);
    to_query[r] = L::set(pair[r].to_query);
    to_value[r] = L::set(-pair[r].to_value);
    from[r] = v[r];
    to[r] = dv[r];
  }
  for_columns<L>(
      0, width, [&](auto columns, std::int64_t j) __attribute__((always_inline)) {
        const F g = columns.load(grad_h + j);
        const F q = columns.load(query + j);
        L::prefetch(ahead + j);
        F dq = columns.load(query_sum + j);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const F x = columns.load(from[r] + j);
          L::prefetch_near(from[r] + width + j);  // the next token's
          F sum = kTouch != Touch::add ? L::mul(p[r], g) : L::fma(p[r], g, columns.load(to[r] + j));
          sum = L::fma(to_query[r], q, sum);
          sum = L::fma(to_value[r], x, sum);
          columns.store(to[r] + j, sum, kTouch == Touch::overwrite_past_caches);
          dq = L::fma(to_query[r], x, dq);
        }
        columns.store(query_sum + j, dq, false);
      });
}

/// The same for any number of sources, some at a time.
template <class L, class V, Touch kTouch>
void add_pair_gradients(const PairGradient* pair, const V* const* v, float* const* dv, std::int64_t n,
                        const float* query, const float* grad_h, float* query_sum, std::int64_t width,
                        const float* ahead) {
  std::int64_t i = 0;
  if constexpr (L::kPairs > 2) {
    for (; i + L::kPairs <= n; i += L::kPairs) {
      add_pairs<L, V, L::kPairs, kTouch>(pair + i, v + i, dv + i, query, grad_h, query_sum, width, ahead);
    }
  }
  for (; i + 2 <= n; i += 2) {
    add_pairs<L, V, 2, kTouch>(pair + i, v + i, dv + i, query, grad_h, query_sum, width, ahead);
  }
  if (i < n) {
    add_pairs<L, V, 1, kTouch>(pair + i, v + i, dv + i, query, grad_h, query_sum, width, ahead);
  }
}

/// dv (+)= G: all that a sole source receives.
template <class L>
void add_sole_gradient(const float* grad_h, float* dv, bool first_touch, std::int64_t width) {
  for_columns<L>(
      0, width, [&](auto columns, std::int64_t j) __attribute__((always_inline)) {
        const typename L::F g = columns.load(grad_h + j);
        columns.store(dv + j, first_touch ? g : L::add(columns.load(dv + j), g), false);
      });
}

/// Products of the rows of one token that the backward of a merge needs.
struct MergeProducts {
  float query;    // q . v
  float along;    // G . v
  float squares;  // v . v
  float mixture;  // G . o
};

/// All in one pass, each summed as `dots` does; brings the gradient's row, and the next token's mixture.
template <class L, class V>
[[gnu::always_inline]] inline MergeProducts merge_products(const V* v, const float* query, const float* grad_h,
                                                           const float* o, const float* gradient, std::int64_t width) {
  using F = typename L::F;
  F total[4] = {L::zero(), L::zero(), L::zero(), L::zero()};
  for (std::int64_t begin = 0; begin < width; begin += kSegment) {
    const std::int64_t end = width - begin < kSegment ? width : begin + kSegment;
    F sum[4] = {L::zero(), L::zero(), L::zero(), L::zero()};
    for_columns<L>(
        begin, end, [&](auto columns, std::int64_t j) __attribute__((always_inline)) {
          const F x = columns.load(v + j);
          const F g = columns.load(grad_h + j);
          sum[0] = L::fma(x, columns.load(query + j), sum[0]);
          sum[1] = L::fma(x, g, sum[1]);
          sum[2] = L::fma(x, x, sum[2]);
          sum[3] = L::fma(columns.load(o + j), g, sum[3]);
          L::prefetch(gradient + j);
          L::prefetch(o + width + j);
        });
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      total[k] = L::add(total[k], sum[k]);
    }
  }
  return {L::sum(total[0]), L::sum(total[1]), L::sum(total[2]), L::sum(total[3])};
}

/// One open partial joined a mixture.
template <class L, class V>
void merge_backward_tokens(const MergeBackwardTask& task, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = task.shape.width;
  const DepthSource& source = task.later[0];
  for (std::int64_t t = begin; t < end; ++t) {
    const V* v = row_at<V>(source.value, t, width);
    const float* grad_h = row_at<float>(task.grad_h, t, width);
    float* gradient = row_at<float>(task.grad_partial, t, width);
    const MergeProducts products =
        merge_products<L>(v, task.query, grad_h, row_at<float>(task.mixture, t, width), gradient, width);
    const float r = scale_from(source, products.squares, t, task.shape, nullptr);
    const float s = r * products.query;
    const float p = __builtin_expf(s - task.lse[t]);
    float delta = __builtin_expf(task.mixture_lse[t] - task.lse[t]) * products.mixture;
    delta += p * products.along;
    task.delta[t] = delta;
    const PairGradient pair = pair_gradient(p, products.along, delta, s, r, width);
    add_pairs<L, V, 1, Touch::add>(&pair, &v, &gradient, task.query, grad_h,
                                   row_at<float>(task.query_sums, t / kTokensPerRun, width), width, grad_h + width);
  }
}

/// Any number of sources, with a mixture or without.
template <class L, class V>
void merge_backward_of_any(const MergeBackwardTask& task, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = task.shape.width;
  const std::int64_t n = task.num_later;
  Scratch64 scratch(task.scratch);
  const V** rows = scratch.take<const V*>(n);
  float* products = scratch.take<float>(n * kWide);
  for (std::int64_t t = begin; t < end; ++t) {
    const float* grad_h = row_at<float>(task.grad_h, t, width);
    const float* both[2] = {task.query, grad_h};
    for (std::int64_t i = 0; i < n; ++i) {
      rows[i] = row_at<V>(task.later[i].value, t, width);
    }
    // The last row's turn brings the gradient's row, the others' their own next rows.
    float* gradient = task.grad_partial == nullptr ? nullptr : row_at<float>(task.grad_partial, t, width);
    const Ahead ahead = n == 1 && gradient != nullptr ? Ahead{0, &gradient} : Ahead{width, nullptr};
    dots<L, V>(rows, n, both, 2, width, products, kWide, ahead);
    if (task.mixture == nullptr && n == 1) {
      task.delta[t] = products[1];
      if (task.grad_partial != nullptr) {
        add_sole_gradient<L>(grad_h, gradient, false, width);
      }
      continue;
    }
    float delta = 0;
    if (task.mixture != nullptr) {
      const float* o = row_at<float>(task.mixture, t, width);
      float along = 0;
      dots<L, float>(&o, 1, &grad_h, 1, width, &along, 1, {width, nullptr});
      delta = n == 0 ? along : __builtin_expf(task.mixture_lse[t] - task.lse[t]) * along;
    }
    PairGradient last;
    float s = 0;
    float r = 0;
    float p = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      r = scale_of<L>(task.later[i], rows[i], t, task.shape, nullptr);
      s = r * products[i * kWide];
      p = __builtin_expf(s - task.lse[t]);
      delta += p * products[i * kWide + 1];
    }
    task.delta[t] = delta;
    if (task.grad_partial == nullptr) {
      continue;
    }
    last = pair_gradient(p, products[(n - 1) * kWide + 1], delta, s, r, width);
    add_pairs<L, V, 1, Touch::add>(&last, rows + n - 1, &gradient, task.query, grad_h,
                                   row_at<float>(task.query_sums, t / kTokensPerRun, width), width, grad_h + width);
  }
}

template <class L, class V>
void merge_backward_task(const MergeBackwardTask& task, std::int64_t begin, std::int64_t end) {
  if (task.mixture != nullptr && task.num_later == 1 && task.grad_partial != nullptr) {
    merge_backward_tokens<L, V>(task, begin, end);
  } else {
    merge_backward_of_any<L, V>(task, begin, end);
  }
}

inline std::size_t merge_backward_scratch_bytes(std::int64_t num_later) {
  return Scratch64::bytes<void*>(num_later) + Scratch64::bytes<float>(num_later * kWide);
}

template <class L, class V>
void aggregate_backward_task(const AggregateBackwardTask& task, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = task.shape.width;
  const std::int64_t n = task.num_sources;
  Scratch64 scratch(task.scratch);
  const V** rows = scratch.take<const V*>(n);
  float** gradients = scratch.take<float*>(n);
  bool* first_touch = scratch.take<bool>(n);
  float* scale = scratch.take<float>(n);
  float* products = scratch.take<float>(n * kWide);
  float* weights = scratch.take<float>(n * kWide);
  float* unused = scratch.take<float>(2 * kWide);
  PairGradient* pairs = scratch.take<PairGradient>(n);
  bool reads_gradients = false;  // or its lines, before they are overwritten through the caches
  for (std::int64_t i = 0; i < n; ++i) {
    first_touch[i] = task.sources[i].first_touch;
    reads_gradients = reads_gradients || !first_touch[i] || !task.stream;
  }
  for (std::int64_t t = begin; t < end; ++t) {
    const float* grad_h = row_at<float>(task.grad_h, t, width);
    if (n == 1) {
      add_sole_gradient<L>(grad_h, row_at<float>(task.sources[0].gradient, t, width), first_touch[0], width);
      continue;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      rows[i] = row_at<V>(task.sources[i].source.value, t, width);
      gradients[i] = row_at<float>(task.sources[i].gradient, t, width);
      scale[i] = scale_of<L>(task.sources[i].source, rows[i], t, task.shape, nullptr);
    }
    const float* both[2] = {task.query, grad_h};
    dots<L, V>(rows, n, both, 2, width, products, kWide, reads_gradients ? Ahead{0, gradients} : Ahead{});
    for (std::int64_t i = 0; i < n; ++i) {
      products[i * kWide] *= scale[i];
      L::store(weights + i * kWide, L::load(products + i * kWide));
    }
    softmax<L>(weights, n, kWide, unused, unused + kWide);
    float delta = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      delta += weights[i * kWide] * products[i * kWide + 1];
    }
    for (std::int64_t i = 0; i < n; ++i) {
      pairs[i] =
          pair_gradient(weights[i * kWide], products[i * kWide + 1], delta, products[i * kWide], scale[i], width);
    }
    float* query_sum = row_at<float>(task.query_sums, t / kTokensPerRun, width);
    for (std::int64_t i = 0; i < n;) {  // neighbours that are alike go together
      const Touch touch = touch_of(first_touch[i], task.stream);
      std::int64_t next = i + 1;
      while (next < n && first_touch[next] == first_touch[i]) {
        ++next;
      }
      const auto add = touch == Touch::add         ? add_pair_gradients<L, V, Touch::add>
                       : touch == Touch::overwrite ? add_pair_gradients<L, V, Touch::overwrite>
                                                   : add_pair_gradients<L, V, Touch::overwrite_past_caches>;
      add(pairs + i, rows + i, gradients + i, next - i, task.query, grad_h, query_sum, width, grad_h + width);
      i = next;
    }
  }
  L::fence();
}

inline std::size_t aggregate_backward_scratch_bytes(std::int64_t n) {
  return 2 * Scratch64::bytes<void*>(n) + Scratch64::bytes<bool>(n) + Scratch64::bytes<float>(n) +
         2 * Scratch64::bytes<float>(n * kWide) + Scratch64::bytes<float>(2 * kWide) +
         Scratch64::bytes<PairGradient>(n);
}

}  // namespace plumb::kernels_detail

// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/formulas.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "blocks.hpp"
#include "building.hpp"
#include "groups.hpp"
#include "plumb/schedule/generators.hpp"

namespace plumb {
namespace {

struct Sizes {
  std::int64_t pp;
  std::int64_t vp;
  std::int64_t m;
  std::int64_t group;  // 0 where there is none
  bool is_loop;

  std::int64_t all() const { return m * vp; }
};

bool by_torch(const ScheduleRequest& request) { return request.group_rule == GroupRule::torch; }

Sizes sizes_of(const ScheduleRequest& request, const Layout& layout) {
  std::int64_t group = 0;
  if (takes_group(request.kind)) {
    group = by_torch(request) ? torch_group(layout) : request.group.value_or(default_group(layout));
  }
  return {layout.pp(), layout.vp(), layout.microbatches(), group, layout.placement() == Placement::loop};
}

template <class Value>
std::vector<std::int64_t> per_rank(const Sizes& n, Value&& value) {
  std::vector<std::int64_t> values;
  for (std::int64_t r = 0; r < n.pp; ++r)
    values.push_back(value(r));
  return values;
}

// Interleaved 1F1B with one chunk per rank is plain 1F1B, except by torch's rule.
bool is_plain(const ScheduleRequest& request, const Sizes& n) {
  return request.kind == ScheduleKind::one_f_one_b ||
         (request.kind == ScheduleKind::interleaved && n.vp == 1 && !by_torch(request));
}

void warmup_and_peak(const ScheduleRequest& request, const Sizes& n, ScheduleFormulas& out) {
  const auto fill = [&](std::string text, auto&& value) {
    out.warmup_text = out.peak_text = std::move(text);
    out.warmup = out.peak = per_rank(n, value);
  };
  const auto fill_peak = [&](std::string text, auto&& value, bool is_exact = true) {
    out.peak_text = std::move(text);
    out.peak = per_rank(n, value);
    out.peak_is_exact = is_exact;
  };
  // Forwards that the building block starts before the rank's first I: in each chunk one per period.
  const auto block_warmup = [&](auto offsets, std::string_view of_a, std::string_view of_b) {
    fill(fmt::format("min(M, ceil({}/6)) + min(M, ceil({}/6))", of_a, of_b), [&](std::int64_t r) {
      const block::Offsets at = offsets(n.pp, r);
      const auto before = [&](std::int64_t start) {
        return std::min(n.m, (at[2] - start + block::period - 1) / block::period);
      };
      return before(at[0]) + before(at[1]);
    });
  };
  const auto block_peak = [&](std::string text, int limit) {
    fill_peak(
        std::move(text), [&](std::int64_t) { return std::min<std::int64_t>(n.all(), limit); }, false);
  };
  const int pp = static_cast<int>(n.pp);
  switch (request.kind) {
    case ScheduleKind::gpipe:
    case ScheduleKind::looped_bfs:
      return fill("M V", [&](std::int64_t) { return n.all(); });
    case ScheduleKind::one_f_one_b:
    case ScheduleKind::interleaved:
      if (is_plain(request, n)) return fill("min(M, P-r)", [&](std::int64_t r) { return std::min(n.m, n.pp - r); });
      return fill("min(M V, (V-1)N + 2(P-1-r) + 1)",
                  [&](std::int64_t r) { return std::min(n.all(), (n.vp - 1) * n.group + 2 * (n.pp - 1 - r) + 1); });
    case ScheduleKind::zb_h1:
      fill("min(M V, (V-1)N + P-r)",
           [&](std::int64_t r) { return std::min(n.all(), (n.vp - 1) * n.group + n.pp - r); });
      return fill_peak("min(M V, (V-1)N + P)",
                       [&](std::int64_t) { return std::min(n.all(), (n.vp - 1) * n.group + n.pp); });
    case ScheduleKind::zb_v:
      return fill("min(M, 2P-1-r) + min(M, r+1)",
                  [&](std::int64_t r) { return std::min(n.m, 2 * n.pp - 1 - r) + std::min(n.m, r + 1); });
    case ScheduleKind::dualpipe_v:
      fill("2P (2P+1 on the last rank)", [&](std::int64_t r) { return 2 * n.pp + (r == n.pp - 1 ? 1 : 0); });
      return fill_peak("2P+1", [&](std::int64_t) { return 2 * n.pp + 1; });
    case ScheduleKind::v_half:
      block_warmup(block::half, pp % 2 == 0 ? "(3P+2)" : "(3P-1)", pp % 2 == 0 ? "(3r+4)" : "(3r+1)");
      return block_peak("min(2M, P + 2)", block::half_limit(pp));
    case ScheduleKind::v_min:
      block_warmup(block::third, pp % 3 == 0 ? "(2P+2)" : "2P", pp % 3 == 0 ? "(2r+3)" : "(2r+1)");
      return block_peak(pp % 3 == 2 ? "min(2M, ceil(2P/3) + 2)" : "min(2M, floor(2P/3) + 2)", block::third_limit(pp));
  }
}

// The bubble's text, when it is exact, and its value where it is.
struct Bubble {
  std::string text;
  std::string rule = "always";
  std::optional<double> value;
};

// A loop walked with full backwards (or none): whoever has fewer microbatches than ranks waits in every round.
Bubble loop_bubble(const Sizes& n, double work, std::string_view work_text) {
  const bool waits = n.m < n.pp && n.vp > 1;
  const std::int64_t rounds = n.pp - 1 + (waits ? (n.vp - 1) * (n.pp - n.m) : 0);
  return {.text = fmt::format("{}{}", waits ? "((P-1) + (V-1)(P-M))" : "(P-1)", work_text),
          .value = static_cast<double>(rounds) * work};
}

Bubble block_bubble(const Sizes& n, std::int64_t slots, std::string text, bool is_even) {
  Bubble bubble{.text = std::move(text), .rule = "F = I = W and M >= P", .value = std::nullopt};
  if (is_even && n.m >= n.pp) bubble.value = static_cast<double>(slots);
  return bubble;
}

Bubble forward_bubble(ScheduleKind kind, const Sizes& n, double forward) {
  if (placement_of(kind) == Placement::loop) return loop_bubble(n, forward, "F");
  if (kind == ScheduleKind::v_half || kind == ScheduleKind::v_min) {
    return {.text = "no formula", .rule = "never", .value = std::nullopt};
  }
  return {.text = "2(P-1)F", .value = 2.0 * static_cast<double>(n.pp - 1) * forward};
}

Bubble bubble_of(const ScheduleRequest& request, const Sizes& n, const ChunkTimes& times, bool pairs_together) {
  const auto [f, i, w] = times;
  const bool is_even = f == i && i == w;
  const auto ranks = static_cast<double>(n.pp - 1);
  if (n.pp == 1) return {.text = "0", .value = 0};
  if (request.forward_only) return forward_bubble(request.kind, n, f);
  switch (request.kind) {
    case ScheduleKind::gpipe:
    case ScheduleKind::one_f_one_b:
    case ScheduleKind::interleaved:
    case ScheduleKind::looped_bfs: {
      Bubble bubble = loop_bubble(n, f + i + w, "(F+B)");
      if (!n.is_loop && n.vp > 1) {
        bubble.rule = "the placement is loop";
        bubble.value.reset();
      }
      return bubble;
    }
    case ScheduleKind::zb_h1: {
      Bubble bubble{.text = "(P-1)(F + I - min(F,I,W))", .rule = "M >= P", .value = std::nullopt};
      if (n.m >= n.pp) bubble.value = ranks * (f + i - std::min({f, i, w}));
      return bubble;
    }
    case ScheduleKind::zb_v: {
      const std::int64_t short_step = 4 * (n.pp - 1) - 2 * (n.m - 1);
      const bool is_short = short_step > n.pp - 1;
      Bubble bubble{.text = is_short ? "(4(P-1) - 2(M-1))F" : "(P-1)F", .rule = "F = I = W", .value = std::nullopt};
      if (is_even) bubble.value = static_cast<double>(std::max(n.pp - 1, short_step)) * f;
      return bubble;
    }
    case ScheduleKind::dualpipe_v: {
      Bubble bubble{.text = pairs_together ? "(P-1)(2F + I - W)" : "(P-1) max(F + I - W, 2F - 2W)",
                    .rule = "W <= I <= F",
                    .value = std::nullopt};
      if (w <= i && i <= f)
        bubble.value = ranks * (pairs_together ? 2 * f + i - w : std::max(f + i - w, 2 * f - 2 * w));
      return bubble;
    }
    case ScheduleKind::v_half: {
      const bool is_odd = n.pp % 2 == 1;
      return block_bubble(n, 3 * n.pp - (is_odd ? 5 : 3), is_odd ? "(3P-5)F" : "(3P-3)F", is_even);
    }
    case ScheduleKind::v_min: {
      const bool by_three = n.pp % 3 == 0;
      return block_bubble(n, 4 * n.pp - (by_three ? 3 : 5), by_three ? "(4P-3)F" : "(4P-5)F", is_even);
    }
  }
  return {};
}

Bubble bubble_of(const ScheduleRequest& request, const Layout& layout, const ChunkTimes& times, bool pairs_together) {
  Bubble bubble = bubble_of(request, sizes_of(request, layout), times, pairs_together);
  const bool is_block = request.kind == ScheduleKind::v_half || request.kind == ScheduleKind::v_min;
  if (bubble.value && is_block) *bubble.value *= times.forward;
  return bubble;
}

}  // namespace

ScheduleFormulas formulas_of(const ScheduleRequest& request, const Layout& layout, bool pairs_together) {
  require_fit(request, layout);
  const Sizes n = sizes_of(request, layout);
  ScheduleFormulas out;
  warmup_and_peak(request, n, out);
  if (request.forward_only) {
    out.warmup_text = "M V";
    out.warmup.assign(out.warmup.size(), n.all());
    out.peak_text = "0";
    out.peak.assign(out.peak.size(), 0);
    out.peak_is_exact = true;
  }
  Bubble bubble = bubble_of(request, layout, ChunkTimes{}, pairs_together);
  out.bubble_text = std::move(bubble.text);
  out.bubble_rule = std::move(bubble.rule);
  return out;
}

std::optional<double> bubble_by_formula(const ScheduleRequest& request, const Layout& layout, const ChunkTimes& times,
                                        bool pairs_together) {
  require_fit(request, layout);
  return bubble_of(request, layout, times, pairs_together).value;
}

}  // namespace plumb

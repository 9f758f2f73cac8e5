// SPDX-License-Identifier: Apache-2.0
// Fast forward operators against double arithmetic on the same stored inputs, for all widths, numbers of sources and
// queries and formats that matter. A logit's error scales with |q| sqrt(d) (Cauchy and Schwarz); a mixture's with its
// logits' errors and, in a short format, with one rounding (two after a merge of a rounded mixture).
#include <cmath>
#include <map>
#include <utility>

#include "kernels/support/cpu_case.hpp"
#include "kernels/support/sampling.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr double kUlp = 0x1.0p-24;

// A relative error in the 2-norm is a statement about many elements.
std::int64_t tokens_for(std::int64_t width) { return width < 1000 ? 60 : 12; }

struct Bounds {
  double mixture_l2;
  double merged_l2;
  double rounding;  // relative, of one store
};
template <class V>
constexpr Bounds kBounds = std::is_same_v<V, float>  ? Bounds{3e-6, 3e-6, 0}
                           : std::is_same_v<V, Bf16> ? Bounds{2.0e-3, 3.0e-3, 0x1p-8}
                                                     : Bounds{2.5e-4, 3.75e-4, 0x1p-11};

double norm(const Rows<double>& row) {
  double sum = 0;
  for (const double each : row) {
    sum += each * each;
  }
  return std::sqrt(sum);
}

// Expected results of one query over the first `count` sources.
struct Expected {
  Rows<double> h;
  Rows<double> lse;
  Rows<double> magnitude;  // sum_i p_i |v_i|
  double logit_error;      // the bound at this width and query
  Rows<double> largest;    // [tokens] max |s|

  Expected(const WideCase& in, std::size_t count, std::size_t l) {
    const DepthProblem& problem = in.problem;
    h = zeros<double>(problem.tokens * problem.width);
    lse = zeros<double>(problem.tokens);
    magnitude = h;
    largest = lse;
    const auto list = in.list(count);
    aggregate_forward(problem, {list, in.queries[l].data(), h.data(), lse.data()});
    for (std::size_t i = 0; i < count; ++i) {
      Rows<double> s = lse;
      aggregate_forward(problem, {{&list[i], 1}, in.queries[l].data(), nullptr, s.data()});
      for (std::size_t k = 0; k < h.size(); ++k) {
        const std::size_t t = k / static_cast<std::size_t>(problem.width);
        magnitude[k] += std::exp(s[t] - lse[t]) * std::abs(in.sources[i][k]);
        largest[t] = std::max(largest[t], std::abs(s[t]));
      }
    }
    logit_error = 2 * kUlp * norm(in.queries[l]) * std::sqrt(static_cast<double>(problem.width));
  }
};

template <class O>
void check_mixture(const Rows<O>& got, const Expected& expected, double l2, double rounding, double of_parts = 0) {
  const Rows<double> wide = to_double(got);
  const std::size_t width = expected.h.size() / expected.lse.size();
  CHECK(rms_of_rows(wide, expected.h, width) <= l2);
  double worst = 0;
  for (std::size_t k = 0; k < wide.size(); ++k) {
    const double ds = expected.logit_error + 4 * kUlp * expected.largest[k / width];
    const double bound = (4 * ds + 0x1p-20) * expected.magnitude[k] + rounding * std::abs(expected.h[k]) +
                         of_parts * expected.magnitude[k] + 1e-30 + (std::is_same_v<O, Fp16> ? 0x1p-24 : 0.0);
    const double error = std::abs(wide[k] - expected.h[k]);
    worst = std::max(worst, error <= 1e30 ? error / bound : 1e30);
  }
  CHECK(worst <= 1.0);
}

void check_lse(const Rows<float>& got, const Expected& expected) {
  for (std::size_t t = 0; t < got.size(); ++t) {
    const double scale = std::max(1.0, std::max(std::abs(expected.lse[t]), expected.largest[t]));
    CHECK(std::abs(static_cast<double>(got[t]) - expected.lse[t]) <= expected.logit_error + 12 * kUlp * scale);
  }
}

/// What is expected of some queries, with and without the partial; each worked out once.
class ExpectedOf {
 public:
  explicit ExpectedOf(const WideCase& wide) : wide_(wide) {}
  const Expected& closed(std::size_t query) { return at(wide_.sources.size() - 1, query); }
  const Expected& joined(std::size_t query) { return at(wide_.sources.size(), query); }

 private:
  const Expected& at(std::size_t count, std::size_t query) {
    const auto key = std::pair{count, query};
    const auto found = known_.find(key);
    return found != known_.end() ? found->second : known_.emplace(key, Expected(wide_, count, query)).first->second;
  }

  const WideCase& wide_;
  std::map<std::pair<std::size_t, std::size_t>, Expected> known_;
};

template <class V>
void check_forward(const CpuCase<V>& in, ExpectedOf& expected, int queries) {
  const std::int64_t tokens = in.problem.tokens;
  const std::int64_t width = in.problem.width;
  const std::size_t count = in.sources.size();
  INFO(to_string(kFormat<V>) << ", width " << width << ", sources " << count << ", queries " << queries);
  TestExecution execution;
  const auto sources = in.list();
  const std::int64_t size = tokens * width;
  const auto num_queries = static_cast<std::size_t>(queries);

  // Phase one in storage and in fp32.
  std::vector<Rows<V>> o(num_queries, not_a_number<V>(size));
  std::vector<Rows<float>> wide_o(num_queries, poison<float>(size));
  std::vector<Rows<float>> lse(num_queries, poison<float>(tokens));
  std::vector<Rows<float>> wide_lse = lse;
  std::vector<PhaseOneQuery> all;
  std::vector<PhaseOneQuery> all_wide;
  for (std::size_t l = 0; l < num_queries; ++l) {
    all.push_back({in.queries[l].data(), o[l].data(), lse[l].data()});
    all_wide.push_back({in.queries[l].data(), wide_o[l].data(), wide_lse[l].data()});
  }
  cpu::phase_one_forward(in.problem, {sources, all}, execution(in.problem, count, num_queries));
  cpu::phase_one_forward(in.problem, {sources, all_wide, true}, execution(in.problem, count, num_queries));

  const Bounds bounds = kBounds<V>;
  for (std::size_t l = 0; l<num_queries; l += num_queries> 2 ? num_queries - 1 : 1) {
    const Expected& closed = expected.closed(l);
    const double sole = count == 1 ? 0.0 : 1.0;  // a sole source is copied
    check_mixture(o[l], closed, sole * bounds.mixture_l2, sole * bounds.rounding);
    check_mixture(wide_o[l], closed, sole * 3e-6, 0);
    check_lse(lse[l], closed);
    CHECK(same_rows(lse[l], wide_lse[l]));

    Rows<V> h = not_a_number<V>(size);
    Rows<float> lse_h = poison<float>(tokens);
    cpu::aggregate_forward(in.problem, {sources, in.queries[l].data(), h.data(), lse_h.data()},
                           execution(in.problem, count, 1));
    check_mixture(h, closed, sole * bounds.mixture_l2, sole * bounds.rounding);
    check_lse(lse_h, closed);

    // The open partial joins: from the stored mixture, from the fp32 one, and directly.
    const Expected& joined = expected.joined(l);
    const DepthSource later{in.partial.data(), nullptr};
    h = not_a_number<V>(size);
    MergeForward merge{o[l].data(), lse[l].data(), {&later, 1}, in.queries[l].data(), h.data(), lse_h.data()};
    cpu::merge_forward(in.problem, merge, execution(in.problem, 2, 1));
    check_mixture(h, joined, bounds.merged_l2, bounds.rounding, bounds.rounding);
    check_lse(lse_h, joined);
    merge.o = wide_o[l].data();
    merge.fp32_mixture = true;
    cpu::merge_forward(in.problem, merge, execution(in.problem, 2, 1));
    check_mixture(h, joined, bounds.mixture_l2, bounds.rounding);

    std::vector<DepthSource> every = sources;
    every.push_back(later);
    const MergeForward direct{nullptr, nullptr, every, in.queries[l].data(), h.data(), lse_h.data()};
    cpu::merge_forward(in.problem, direct, execution(in.problem, count + 1, 1));
    check_mixture(h, joined, bounds.mixture_l2, bounds.rounding);
    check_lse(lse_h, joined);
  }
}

template <class V>
void check_all() {
  const Sampling sampling(1);
  int number = 0;
  for (const std::int64_t width : {100, 1000, 2304, 4096, 7168}) {
    for (const int n : {1, 2, 3, 8, 9, 16, 17}) {
      if (!sampling.takes(number++)) {
        continue;
      }
      const CpuCase<V> in(tokens_for(width), width, n, 24, number % 2 == 0 ? 1.0 : 8.0);
      const WideCase wide(in);
      ExpectedOf expected(wide);
      for (const int queries : {1, 2, 6, 16, 24}) {
        check_forward(in, expected, queries);
      }
    }
  }
}

}  // namespace

TEST_CASE("fast forward operators keep their bounds in fp32", "[kernels]") { check_all<float>(); }
TEST_CASE("fast forward operators keep their bounds in bf16", "[kernels]") { check_all<Bf16>(); }
TEST_CASE("fast forward operators keep their bounds in fp16", "[kernels]") { check_all<Fp16>(); }

// SPDX-License-Identifier: Apache-2.0
// Fast forward operators against double arithmetic on the same stored inputs, for all widths, numbers of sources and
// queries and formats that matter.
#include <map>
#include <utility>

#include "kernels/support/cpu_case.hpp"
#include "kernels/support/forward_bounds.hpp"
#include "kernels/support/sampling.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// A relative error in the 2-norm is a statement about many elements.
std::int64_t tokens_for(std::int64_t width) { return width < 1000 ? 60 : 12; }

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
    return found != known_.end()
               ? found->second
               : known_.emplace(key, Expected(wide_.problem, wide_.list(count), wide_.queries[query])).first->second;
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
  CpuRun fast;
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
  fast.phase_one(in.problem, {sources, all});
  fast.phase_one(in.problem, {sources, all_wide, true});

  for (std::size_t l = 0; l<num_queries; l += num_queries> 2 ? num_queries - 1 : 1) {
    check_phase_one(o[l], wide_o[l], lse[l], count, expected.closed(l));
    check_merges(fast, in, l, o[l], wide_o[l], lse[l], expected.closed(l), expected.joined(l));
    CHECK(same_rows(lse[l], wide_lse[l]));
  }
}

template <class V>
void check_all_forward() {
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

TEST_CASE("fast forward operators keep their bounds in fp32", "[kernels]") { check_all_forward<float>(); }
TEST_CASE("fast forward operators keep their bounds in bf16", "[kernels]") { check_all_forward<Bf16>(); }
TEST_CASE("fast forward operators keep their bounds in fp16", "[kernels]") { check_all_forward<Fp16>(); }

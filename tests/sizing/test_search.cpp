// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <map>

#include "plumb/schedule/error.hpp"
#include "plumb/sizing/search.hpp"
#include "sizing/requests.hpp"
#include "support/catch.hpp"

using namespace plumb;
using plumb::test::require_same;
using plumb::test::small_cluster;
using plumb::test::small_request;

TEST_CASE("pruned search finds what simulating everything finds", "[sizing]") {
  std::vector<SizeRequest> requests{small_request()};
  requests.push_back(small_request());
  requests.back().cluster = small_cluster(4);
  requests.back().memory_bytes = 9e8;
  requests.back().settled = {.policies = {Policy::cached, Policy::naive}, .recomputes = {Recompute::selective}};
  requests.push_back(small_request());
  requests.back().block_sublayers = 0;
  requests.back().gpus = 6;
  requests.back().global_batch = 12;
  requests.back().memory_bytes = 1.2e9;
  requests.push_back(small_request());
  requests.back().cluster = *cluster_preset("ethernet-25g");
  requests.back().cluster.tiers.front().span_gpus = 1;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  requests.resize(1);  // test_bounds.cpp has more
#endif
  for (const SizeRequest& request : requests) {
    const SearchResult all = search(request, {.prune = false});
    const SearchResult pruned = search(request);
    INFO(all.num_candidates << " candidates, " << all.num_evaluated << " simulated, " << pruned.num_evaluated
                            << " when pruned");
    CHECK(pruned.num_evaluated <= all.num_evaluated);
    CHECK(pruned.num_evaluated + pruned.num_dropped + pruned.num_too_large == pruned.num_candidates);
    require_same(all, pruned);
  }
}

TEST_CASE("threads and an interrupted run before change no bit", "[sizing]") {
  const SizeRequest request = small_request();
  const SearchResult one = search(request, {.num_threads = 1});
  require_same(one, search(request, {.num_threads = 3}));

  std::map<std::string, Outcome> recorded;
  std::atomic<int> asked{0};
  SearchOptions options;
  options.record = [&](std::span<const Evaluated> wave) {
    for (const Evaluated& each : wave)
      CHECK(recorded.emplace(to_string(each.candidate), each.outcome).second);
  };
  options.stop = [&] { return ++asked > 90; };
  const SearchResult cut = search(request, options);
  CHECK_FALSE(cut.is_complete);
  CHECK_FALSE(cut.best.empty());
  CHECK(recorded.size() == cut.num_evaluated);
  const std::size_t before = recorded.size();
  options.stop = {};
  options.recall = [&](const Candidate& candidate) {
    const auto found = recorded.find(to_string(candidate));
    return found == recorded.end() ? std::nullopt : std::optional(found->second);
  };
  const SearchResult resumed = search(request, options);
  CHECK(resumed.is_complete);
  CHECK(resumed.num_evaluated == one.num_evaluated);
  CHECK(recorded.size() == one.num_evaluated);
  CHECK(before > 0);
  require_same(one, resumed);
}

TEST_CASE("progress counts what is decided up to all of it", "[sizing]") {
  SearchProgress before;
  SearchOptions options;
  options.progress = [&](const SearchProgress& now) {
    CHECK(now.evaluated >= before.evaluated);
    CHECK(now.decided >= before.decided);
    CHECK((before.decided == 0 || now.decided + now.left == before.decided + before.left));
    before = now;
  };
  const SearchResult result = search(small_request(), options);
  CHECK(before.left == 0);
  CHECK(before.evaluated == result.num_evaluated);
  CHECK(before.decided >= result.num_evaluated + result.num_dropped);
  CHECK(before.best_step_us == result.best.front().outcome.step_us());
}

TEST_CASE("more memory never makes the best slower, and none at all leaves the smallest to be named", "[sizing]") {
  SizeRequest request = small_request();
  double before = 0;
  for (const double bytes : {4e9, 1e9, 7e8, 5e8, 3e8}) {
    request.memory_bytes = bytes;
    const SearchResult result = search(request);
    if (result.best.empty()) {
      before = 1e300;
      CHECK(result.smallest);
      continue;
    }
    CHECK(result.best.front().outcome.step_us() >= before);
    CHECK(result.best.front().outcome.peak_bytes <= bytes);
    before = result.best.front().outcome.step_us();
  }
  request.memory_bytes = 1e6;
  const SearchResult none = search(request);
  CHECK(none.best.empty());
  CHECK(none.num_evaluated == 0);
  REQUIRE(none.smallest);
  CHECK(memory_need(request, *none.smallest).total() > 1e6);
}

TEST_CASE("the memory of the fullest device adds up", "[sizing]") {
  const SizeRequest request = small_request();
  const CandidateFamily family = candidate_families(request).back();
  for (std::size_t i = 0; i < family.size(); i += 5) {
    const Outcome outcome = evaluate(request, family.at(i));
    const MemoryNeed need = memory_need(request, family.at(i));
    CHECK(need.total() == outcome.peak_bytes);
    CHECK(need.rank == outcome.peak_rank);
    CHECK(need.activation_bytes > 0);
  }
}

TEST_CASE("requests without a layout are refused with the nearest that has one", "[sizing]") {
  SizeRequest request = small_request();
  request.settled = {.pp = {3}};
  CHECK_THROWS_WITH(candidate_families(request),
                    "--gpus 4 is not divisible by --pp 3, 3 in all: the nearest are 3 and 6");
  request = small_request();
  request.settled = {.dp = {4}};
  request.global_batch = 6;
  CHECK_THROWS_WITH(candidate_families(request),
                    "--global-batch 6 cannot be dealt out to 4 devices with a layout --dp 4: the nearest that can is 4 "
                    "or 8");
  request = small_request();
  request.gpus = 2 * 7;
  request.settled.dp = {1};
  CHECK_THROWS_AS(candidate_families(request), InputError);
}

TEST_CASE("a digest changes with everything that an outcome depends on", "[sizing]") {
  const SizeRequest request = small_request();
  const std::string digest = digest_of(request);
  CHECK(digest.size() == 16);
  CHECK(digest_of(small_request()) == digest);
  const auto changed = [&](auto&& change) {
    SizeRequest other = small_request();
    change(other);
    return digest_of(other) != digest;
  };
  CHECK(changed([](SizeRequest& r) { r.memory_bytes += 1; }));
  CHECK(changed([](SizeRequest& r) { r.shape.layers.back().experts = false; }));
  CHECK(changed([](SizeRequest& r) { r.shape.experts.width += 1; }));
  CHECK(changed([](SizeRequest& r) { r.cluster.tiers.back().latency_us += 1; }));
  CHECK(changed([](SizeRequest& r) { r.sequence = 2048; }));
  CHECK(changed([](SizeRequest& r) { r.block_sublayers = 2; }));
}

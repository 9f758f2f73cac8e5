// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "plumb/schedule/error.hpp"
#include "plumb/sizing/search.hpp"
#include "sizing/requests.hpp"
#include "support/catch.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int num_requests = 3;
#else
constexpr int num_requests = 12;
#endif

using namespace plumb;
using plumb::test::require_same;
using plumb::test::small_cluster;
using plumb::test::small_model;

namespace {

class Requests {
 public:
  explicit Requests(unsigned seed) : random_(seed) {}

  // With a few hundred candidates at most.
  SizeRequest next() {
    while (true) {
      const SizeRequest request = any();
      try {
        std::size_t count = 0;
        for (const CandidateFamily& family : candidate_families(request))
          count += family.size();
        if (count <= 400) return request;
      } catch (const InputError&) {
        // None at all.
      }
    }
  }

 private:
  int one_of(std::initializer_list<int> values) {
    return values.begin()[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random_)];
  }
  double between(double least, double most) {
    return std::exp(std::uniform_real_distribution<double>(std::log(least), std::log(most))(random_));
  }

  SizeRequest any() {
    SizeRequest request;
    request.shape = small_model(one_of({2, 3, 4, 6, 7, 9}));
    if (one_of({0, 1}) == 0) request.shape.experts = {};
    if (request.shape.experts.count == 0) {
      for (auto& layer : request.shape.layers)
        layer.experts = false;
    }
    request.shape.tied_embeddings = one_of({0, 1}) == 1;
    request.block_sublayers = std::min(one_of({0, 1, 2, 3, 4, 6}), 2 * static_cast<int>(request.shape.layers.size()));
    request.shape.depth_attention = request.block_sublayers > 0;
    request.gpus = one_of({1, 2, 3, 4, 6, 8, 12});
    request.cluster = small_cluster(one_of({1, 2, 4, 8}));
    // From networks that hide behind the work to such that are all of it.
    for (Tier& tier : request.cluster.tiers) {
      tier.GBps_per_dir *= between(0.003, 1);
      tier.latency_us *= between(0.1, 30);
    }
    if (one_of({0, 0, 0, 1}) == 1) request.cluster.stragglers = {{.rank = 0, .compute_scale = between(1, 2)}};
    request.global_batch = request.gpus * one_of({1, 2, 3, 4, 8});
    request.sequence = one_of({128, 512, 1024});
    request.memory_bytes = between(1e8, 4e9);
    request.gradient_wire = one_of({0, 1}) == 0 ? GradientWire::fp32 : GradientWire::storage;
    request.settled.recomputes = {one_of({0, 1}) == 0 ? Recompute::none : Recompute::full};
    if (one_of({0, 1, 1}) == 1) request.settled.microbatch = {1};
    if (one_of({0, 1}) == 1) request.settled.vp = {one_of({1, 2, 3})};
    if (one_of({0, 1}) == 1) request.settled.tp = {one_of({1, 2})};
    return request;
  }

  std::mt19937 random_;
};

}  // namespace

TEST_CASE("no candidate does better than its bounds, and a search that uses them prints what simulating all would",
          "[sizing]") {
  Requests requests(20261130);
  std::size_t looked_at = 0;
  std::size_t simulated = 0;
  for (int r = 0; r < num_requests; ++r) {
    const SizeRequest request = requests.next();
    std::map<std::size_t, Evaluated> all;
    SearchOptions options{.prune = false};
    options.record = [&](std::span<const Evaluated> wave) {
      for (const Evaluated& one : wave)
        all.emplace(one.order, one);
    };
    const SearchResult whole = search(request, options);
    const SearchResult pruned = search(request);
    INFO(r << ": " << whole.num_candidates << " candidates, " << whole.num_evaluated << " and " << pruned.num_evaluated
           << " simulated");
    require_same(whole, pruned);
    CHECK(pruned.num_evaluated + pruned.num_dropped + pruned.num_too_large == pruned.num_candidates);
    CHECK(pruned.num_evaluated <= whole.num_evaluated);
    simulated += pruned.num_evaluated;

    std::size_t order = 0;
    for (const CandidateFamily& family : candidate_families(request)) {
      const std::vector<LowerBounds> bounds = lower_bounds(request, family);
      REQUIRE(bounds.size() == family.size());
      for (std::size_t i = 0; i < family.size(); ++i, ++order) {
        const auto found = all.find(order);
        if (found == all.end()) {
          CHECK(bounds[i].peak_bytes > request.memory_bytes);
          continue;
        }
        const Outcome& outcome = found->second.outcome;
        INFO(to_string(found->second.candidate));
        REQUIRE(found->second.candidate == family.at(i));
        CHECK(outcome.peak_bytes >= bounds[i].peak_bytes);
        if (!outcome.fits) continue;
        CHECK(outcome.step_us() >= bounds[i].step_us);
        CHECK(outcome.network_bytes == bounds[i].network_bytes);
        ++looked_at;
      }
    }
  }
  CHECK(looked_at > 50 * num_requests);
  CHECK(simulated < looked_at);
}

TEST_CASE("what differs in sharding only is simulated once and told apart", "[sizing]") {
  const SizeRequest request = plumb::test::small_request();
  for (const CandidateFamily& family : candidate_families(request)) {
    if (family.shardings.size() < 2) continue;
    const std::vector<Outcome> together = evaluate(request, family.at(0), family.shardings);
    REQUIRE(together.size() == family.shardings.size());
    for (std::size_t i = 0; i < together.size(); ++i) {
      Candidate candidate = family.at(0);
      candidate.sharding = family.shardings[i];
      INFO(to_string(candidate));
      CHECK(together[i] == evaluate(request, candidate));
    }
  }
}

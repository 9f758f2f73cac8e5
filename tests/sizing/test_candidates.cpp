// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <random>
#include <set>

#include "balanced_cuts.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/sizing/candidates.hpp"
#include "plumb/sizing/roofline.hpp"
#include "support/catch.hpp"

using namespace plumb;

namespace {

double heaviest(const std::vector<double>& weights, double tail, const std::vector<int>& cuts) {
  double most = 0;
  int layer = 0;
  for (std::size_t chunk = 0; chunk < cuts.size(); ++chunk) {
    double sum = chunk + 1 == cuts.size() ? tail : 0;
    for (; layer < cuts[chunk]; ++layer)
      sum += weights[static_cast<std::size_t>(layer)];
    most = std::max(most, sum);
  }
  return most;
}

// By trying all.
double lightest_heaviest(const std::vector<double>& weights, double tail, int chunks) {
  const int layers = static_cast<int>(weights.size());
  std::vector<int> cuts(static_cast<std::size_t>(chunks), layers);
  double best = 1e300;
  const auto choose = [&](auto&& self, int chunk, int from) -> void {
    if (chunk == chunks - 1) {
      best = std::min(best, heaviest(weights, tail, cuts));
      return;
    }
    for (int end = from + 1; end <= layers - (chunks - 1 - chunk); ++end) {
      cuts[static_cast<std::size_t>(chunk)] = end;
      self(self, chunk + 1, end);
    }
  };
  choose(choose, 0, 0);
  return best;
}

SizeRequest k3_request() {
  SizeRequest request;
  request.shape = load_shape("kimi-k3");
  request.block_sublayers = 24;
  request.cluster = *cluster_preset("h100");
  request.gpus = 1024;
  request.global_batch = 1024;
  request.memory_bytes = 72.0 * (1 << 30);
  return request;
}

}  // namespace

TEST_CASE("balanced cuts make the heaviest chunk as light as it can be, and no chunk empty", "[sizing]") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto layers = static_cast<std::size_t>(1 + random() % 9);
    std::vector<double> weights(layers);
    for (double& weight : weights)
      weight = 1 + static_cast<double>(random() % 7) / 3;
    const double tail = random() % 2 == 0 ? 0 : static_cast<double>(random() % 9) / 2;
    const int chunks = 1 + static_cast<int>(random() % layers);
    const std::vector<int> cuts = balanced_cuts(weights, tail, chunks);
    INFO(layers << " layers, " << chunks << " chunks, round " << round);
    REQUIRE(static_cast<int>(cuts.size()) == chunks);
    CHECK(cuts.back() == static_cast<int>(layers));
    CHECK(std::adjacent_find(cuts.begin(), cuts.end(), std::greater_equal<>()) == cuts.end());
    CHECK(cuts.front() >= 1);
    CHECK(heaviest(weights, tail, cuts) == Approx(lightest_heaviest(weights, tail, chunks)));
  }
}

TEST_CASE("equal layers are cut as evenly as they can be", "[sizing]") {
  const std::vector<double> weights(12, 1.0);
  CHECK(balanced_cuts(weights, 0, 4) == std::vector{3, 6, 9, 12});
  CHECK(balanced_cuts(weights, 3, 5) == std::vector{3, 6, 9, 11, 12});
}

TEST_CASE("candidates are legal, different from each other, and use all devices and the whole batch", "[sizing]") {
  const SizeRequest request = k3_request();
  std::size_t count = 0;
  std::set<std::string> names;
  for (const CandidateFamily& family : candidate_families(request)) {
    const Candidate first = family.at(0);
    CHECK(first.pp * first.degrees.gpus() == 1024);
    CHECK(std::int64_t{first.microbatches} * first.microbatch * first.degrees.dp == 1024);
    CHECK_NOTHROW(require_divides(request.shape, batch_of(request, first)));
    CHECK(first.degrees.tp <= 8);
    count += family.size();
    if (names.size() < 3000) {
      for (std::size_t i = 0; i < family.size(); ++i)
        CHECK(names.insert(to_string(family.at(i))).second);
    }
  }
  CHECK(count > 100'000);
}

TEST_CASE("shardings are told apart only where parameters exist more than once", "[sizing]") {
  SizeRequest request = k3_request();
  request.cluster = *cluster_preset("h100");
  request.gpus = 8;
  request.global_batch = 8;
  request.settled = {.pp = {2}, .dp = {1}};
  const auto shardings = [&](std::optional<int> ep) {
    std::set<Sharding> all;
    for (const CandidateFamily& family : candidate_families(request)) {
      if (!ep || family.first.degrees.ep == *ep) all.insert(family.shardings.begin(), family.shardings.end());
    }
    return all;
  };
  CHECK(shardings(4) == std::set{Sharding::none});
  CHECK(shardings(2) == std::set{Sharding::none, Sharding::optimizer, Sharding::gradients});  // experts twice
  request.settled.shardings = {Sharding::optimizer, Sharding::gradients};
  CHECK(shardings(4) == std::set{Sharding::optimizer});  // as the user calls it
  request.settled.shardings.clear();
  request.shape.experts = {};
  for (DecoderLayer& layer : request.shape.layers)
    layer.experts = false;
  CHECK(shardings(std::nullopt) == std::set{Sharding::none});
  request.settled.dp = {2};
  CHECK(shardings(std::nullopt).size() == 3);
}

TEST_CASE("layouts of more microbatches than a pipeline has are left out", "[sizing]") {
  SizeRequest request = k3_request();
  request.gpus = 8;
  request.global_batch = 2'000'000;
  request.settled = {.pp = {8}};
  for (const CandidateFamily& family : candidate_families(request))
    CHECK(family.first.microbatch > 1);
  request.settled.microbatch = {1};
  CHECK_THROWS_WITH(candidate_families(request),
                    "--global-batch 2000000 makes more microbatches --pp 8 --microbatch 1 than the 1048576 that a "
                    "pipeline is laid out for: the largest --global-batch is 1048576, or --microbatch 2");
}

TEST_CASE("times of chunks from a table of sublayers are those from the model", "[sizing]") {
  const SizeRequest request = k3_request();
  Candidate candidate{.pp = 16, .vp = 2, .degrees = {.tp = 8, .ep = 64, .dp = 8}, .microbatches = 128};
  candidate.schedule = ScheduleKind::interleaved;
  candidate.group = 16;
  const Batch batch = batch_of(request, candidate);
  for (const CutRule rule : {CutRule::traffic, CutRule::time}) {
    candidate.cuts = rule;
    const std::vector<int> cuts = cuts_of(request, candidate);
    const std::vector<ActionTimes> whole = chunk_times(request.shape, cuts, batch, request.cluster);
    const std::vector<ActionTimes> summed = chunk_times(sublayer_costs(request.shape, batch, request.cluster), cuts);
    for (std::size_t chunk = 0; chunk < cuts.size(); ++chunk) {
      CHECK(summed[chunk].forward == whole[chunk].forward);
      CHECK(summed[chunk].backward == whole[chunk].backward);
    }
  }
}

TEST_CASE("cuts by time have no slower chunk than cuts by traffic", "[sizing]") {
  const SizeRequest request = k3_request();
  Candidate candidate{.pp = 16, .vp = 2, .degrees = {.tp = 8, .ep = 64, .dp = 8}, .microbatches = 128};
  const auto slowest = [&](CutRule rule) {
    candidate.cuts = rule;
    SimTime most{0};
    for (const ActionTimes& times :
         chunk_times(request.shape, cuts_of(request, candidate), batch_of(request, candidate), request.cluster))
      most = std::max(most, times.forward + times.backward);
    return most;
  };
  CHECK(slowest(CutRule::time) <= slowest(CutRule::traffic));
}

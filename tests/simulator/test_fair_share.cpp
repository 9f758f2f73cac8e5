// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "fair_share.hpp"
#include "simulator/support/flows.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

constexpr SimTime second{1'000'000'000'000};

double bytes_per_s(FlowRate rate) { return static_cast<double>(rate) / (1 << 20); }

}  // namespace

TEST_CASE("flows get the shares that hand and textbook give them", "[simulator]") {
  // Three links of 10, 6 and 4 GB/s. A passes all, B the first, C the second, D and E the third.
  const std::vector<NetworkResource> links{{"a", 10e9}, {"b", 6e9}, {"c", 4e9}};
  FairShare fair(links);
  const auto flow = [&](std::vector<ResourceId> path) { return fair.start(path, 1'000'000'000'000, SimTime(0)); };
  const FairShare::Flow a = flow({ResourceId(0), ResourceId(1), ResourceId(2)});
  const FairShare::Flow b = flow({ResourceId(0)});
  const FairShare::Flow c = flow({ResourceId(1)});
  const FairShare::Flow d = flow({ResourceId(2)});
  const FairShare::Flow e = flow({ResourceId(2)});
  std::vector<FairShare::Change> changes;
  fair.share(SimTime(0), changes);
  CHECK(changes.size() == 5);
  CHECK(bytes_per_s(fair.rate(a)) == Approx(4e9 / 3));
  CHECK(bytes_per_s(fair.rate(d)) == Approx(4e9 / 3));
  CHECK(bytes_per_s(fair.rate(e)) == Approx(4e9 / 3));
  CHECK(bytes_per_s(fair.rate(b)) == Approx(10e9 - 4e9 / 3));
  CHECK(bytes_per_s(fair.rate(c)) == Approx(6e9 - 4e9 / 3));

  // A leaves after 3 s: only those it shared with change.
  changes.clear();
  fair.end(a);
  fair.share(3 * second, changes);
  CHECK(changes.size() == 4);
  CHECK(bytes_per_s(fair.rate(d)) == 2e9);
  CHECK(fair.finish(d) == (3 + (1000 - 4) / 2) * second);
  CHECK(bytes_per_s(fair.rate(b)) == 10e9);
}

TEST_CASE("a flow that starts changes no flow that shares nothing with it", "[simulator]") {
  const std::vector<NetworkResource> links{{"a", 8}, {"b", 8}};
  FairShare fair(links);
  std::vector<FairShare::Change> changes;
  const FairShare::Flow left = fair.start(std::vector{ResourceId(0)}, 80, SimTime(0));
  fair.share(SimTime(0), changes);
  CHECK(fair.finish(left) == 10 * second);
  changes.clear();
  const FairShare::Flow right = fair.start(std::vector{ResourceId(1)}, 80, 4 * second);
  fair.share(4 * second, changes);
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].flow == right);
  CHECK(changes[0].finish == 14 * second);
}

TEST_CASE("every flow has a full resource on its way on which no flow is faster", "[simulator]") {
  Dice dice(601);
  for (int round = 0; round < 200; ++round) {
    const FlowSet set = random_flows(dice, 30);
    FairShare fair(set.resources);
    std::vector<FairShare::Change> changes;
    std::vector<FairShare::Flow> flows;
    for (const FlowCase& flow : set.flows) {
      flows.push_back(fair.start(flow.path, flow.bytes, SimTime(0)));
      fair.share(SimTime(0), changes);
    }
    std::vector<double> used(set.resources.size(), 0);
    std::vector<double> fastest(set.resources.size(), 0);
    for (std::size_t f = 0; f < flows.size(); ++f) {
      for (const ResourceId resource : set.flows[f].path) {
        const double rate = bytes_per_s(fair.rate(flows[f]));
        used[resource.index()] += rate;
        fastest[resource.index()] = std::max(fastest[resource.index()], rate);
      }
    }
    for (std::size_t f = 0; f < flows.size(); ++f) {
      const double rate = bytes_per_s(fair.rate(flows[f]));
      const bool bound = std::any_of(set.flows[f].path.begin(), set.flows[f].path.end(), [&](ResourceId resource) {
        return used[resource.index()] > set.resources[resource.index()].bytes_per_s - 1e-3 &&
               rate > fastest[resource.index()] - 1e-3;
      });
      REQUIRE(bound);
    }
    for (std::size_t r = 0; r < used.size(); ++r)
      REQUIRE(used[r] <= set.resources[r].bytes_per_s);
  }
}

TEST_CASE("flows that come and go end when the plain reference says", "[simulator]") {
  Dice dice(602);
  for (int round = 0; round < 200; ++round) {
    const FlowSet set = random_flows(dice, 25);
    const std::vector<SimTime> ends = run_fair_share(set);
    const std::vector<double> expected = run_plainly(set);
    for (std::size_t f = 0; f < ends.size(); ++f) {
      const double picoseconds = expected[f] * 1e12;
      REQUIRE(std::abs(static_cast<double>(ends[f].count()) - picoseconds) <= 1e-9 * picoseconds + 2);
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
//
// An independent oracle: the same flows through Debian's SimGrid. It simulates once per process, so all sets of flows
// run at once, each on links of its own.
#include <cmath>
#include <ctime>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

#include "simulator/support/flows.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

namespace sg4 = simgrid::s4u;

constexpr double second = 1e12;

// [set][flow] in seconds.
std::vector<std::vector<double>> run_in_simgrid(const std::vector<FlowSet>& sets) {
  std::string name = "oracle";
  std::vector<char*> arguments{name.data(), nullptr};
  int count = 1;
  sg4::Engine engine(&count, arguments.data());
  engine.set_config("network/model:CM02");
  engine.set_config("network/crosstraffic:0");
  sg4::NetZone* zone = sg4::create_full_zone("all");
  std::vector<std::vector<double>> ends;
  for (const FlowSet& set : sets)
    ends.emplace_back(set.flows.size(), 0.0);
  for (std::size_t s = 0; s < sets.size(); ++s) {
    std::vector<const sg4::Link*> links;
    for (std::size_t r = 0; r < sets[s].resources.size(); ++r) {
      const std::string link = "link " + std::to_string(s) + "." + std::to_string(r);
      links.push_back(zone->create_link(link, sets[s].resources[r].bytes_per_s)->set_latency(0)->seal());
    }
    for (std::size_t f = 0; f < sets[s].flows.size(); ++f) {
      const FlowCase& flow = sets[s].flows[f];
      const std::string place = std::to_string(s) + "." + std::to_string(f);
      sg4::Host* from = zone->create_host("from " + place, 1e9)->seal();
      sg4::Host* to = zone->create_host("to " + place, 1e9)->seal();
      std::vector<sg4::LinkInRoute> route;
      for (const ResourceId resource : flow.path)
        route.emplace_back(links[resource.index()]);
      zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, route, false);
      double& end = ends[s][f];
      sg4::Actor::create("flow " + place, from, [from, to, &flow, &end] {
        sg4::this_actor::sleep_until(static_cast<double>(flow.start.count()) / second);
        sg4::Comm::sendto(from, to, static_cast<std::uint64_t>(flow.bytes));
        end = sg4::Engine::get_clock();
      });
    }
  }
  zone->seal();
  engine.run();
  return ends;
}

}  // namespace

TEST_CASE("flows that share links end when SimGrid says", "[simgrid]") {
  Dice dice(641);
  std::vector<FlowSet> sets;
  for (int round = 0; round < 40; ++round)
    sets.push_back(random_flows(dice, 20));
  const std::clock_t begin = std::clock();
  const std::vector<std::vector<double>> expected = run_in_simgrid(sets);
  const std::clock_t between = std::clock();
  for (const FlowSet& set : sets)
    run_fair_share(set);
  const std::clock_t end = std::clock();
  double worst = 0;
  for (std::size_t s = 0; s < sets.size(); ++s) {
    const std::vector<SimTime> ends = run_fair_share(sets[s]);
    for (std::size_t f = 0; f < ends.size(); ++f) {
      const double found = static_cast<double>(ends[f].count()) / second;
      CAPTURE(s, f, found, expected[s][f]);
      // SimGrid's own precision is a nanosecond per event.
      REQUIRE(std::abs(found - expected[s][f]) <= 1e-9 * found + 1e-9);
      worst = std::max(worst, std::abs(found - expected[s][f]));
    }
  }
  WARN("largest difference " << worst << " s; processor time of SimGrid "
                             << static_cast<double>(between - begin) / CLOCKS_PER_SEC << " s, of FairShare "
                             << static_cast<double>(end - between) / CLOCKS_PER_SEC << " s");
}

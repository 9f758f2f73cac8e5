// SPDX-License-Identifier: Apache-2.0
//
// Whole programs through Debian's SimGrid: every computation and every message an activity that waits for what the
// program says, computations of a rank one after the other, messages at SimGrid's own fair shares. It simulates once
// per process, so all programs run at once, each on hosts and links of its own.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

#include "cache/support/programs.hpp"
#include "network_hops.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/network.hpp"
#include "simulator/support/models.hpp"
#include "simulator/support/networks.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

namespace sg4 = simgrid::s4u;

struct Case {
  Program program;
  CostModel costs;
  NetworkModel network;
};

class InSimGrid {
 public:
  InSimGrid(sg4::NetZone& zone, const Case& of, const std::string& name)
      : of_(of), hops_(of.program, of.costs, of.network), zone_(zone), name_(name) {
    const std::size_t num_ranks = of.program.ranks.size();
    for (std::size_t r = 0; r < of.network.resources.size(); ++r) {
      const double rate = of.network.resources[r].bytes_per_s;
      links_.push_back(zone.create_link(name + " link " + std::to_string(r), rate)->set_latency(0)->seal());
    }
    for (std::size_t r = 0; r < num_ranks; ++r)
      hosts_.push_back(zone.create_host(name + " rank " + std::to_string(r), 1e12)->seal());
    for (std::size_t r = 0; r < num_ranks; ++r) {
      computes_.emplace_back();
      comms_.emplace_back(of.program.ranks[r].comm.size());
      for (const ComputeStep& step : of.program.ranks[r].compute) {
        const auto picoseconds = static_cast<double>(of.costs.time_of(step.compute).count());
        computes_[r].push_back(work(r, picoseconds));
      }
    }
    make_messages();
    for (std::size_t r = 0; r < num_ranks; ++r)
      connect(r);
  }

  void start() {
    for (const sg4::ActivityPtr& activity : all_)
      activity->vetoable_start();
  }

  double end() const {
    double last = 0;
    for (const auto& rank : computes_) {
      for (const sg4::ActivityPtr& activity : rank)
        last = std::max(last, activity->get_finish_time());
    }
    return last;
  }

 private:
  // The speed is a picosecond's worth per unit, so that the amount is the time.
  sg4::ActivityPtr work(std::size_t rank, double picoseconds) {
    all_.push_back(sg4::Exec::init()->set_flops_amount(picoseconds)->set_host(hosts_[rank]));
    return all_.back();
  }

  void make_messages() {
    const Program& program = of_.program;
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      for (std::size_t i = 0; i < program.ranks[r].comm.size(); ++i) {
        const CommStep& comm = program.ranks[r].comm[i];
        if (comm.kind != CommKind::send && comm.kind != CommKind::receive) comms_[r][i] = work(r, 0);
        if (comm.kind != CommKind::receive) continue;
        const NetworkHop& hop = hops_.of(program.messages[comm.message.index()]);
        const std::int64_t bytes = hop.unit_bytes * static_cast<std::int64_t>(comm.segments.size());
        comms_[r][i] = bytes > 0 && hop.length > 0 ? message(hop, bytes) : work(r, 0);
        by_message_.resize(program.messages.size());
        by_message_[comm.message.index()] = comms_[r][i];
      }
    }
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      for (std::size_t i = 0; i < program.ranks[r].comm.size(); ++i) {
        const CommStep& comm = program.ranks[r].comm[i];
        if (comm.kind == CommKind::send) comms_[r][i] = by_message_[comm.message.index()];
      }
    }
  }

  // Hosts of its own per kind of message: its way may be another than that of others between the same ranks.
  sg4::ActivityPtr message(const NetworkHop& hop, std::int64_t bytes) {
    const std::string place = name_ + " " + std::to_string(all_.size());
    auto [found, is_new] = ways_.try_emplace({hop.from.value, hop.to.value});
    if (is_new) {
      found->second = {zone_.create_host("from " + place, 1e9)->seal(), zone_.create_host("to " + place, 1e9)->seal()};
      std::vector<sg4::LinkInRoute> route;
      for (const ResourceId resource : hop.resources())
        route.emplace_back(links_[resource.index()]);
      zone_.add_route(found->second.first->get_netpoint(), found->second.second->get_netpoint(), nullptr, nullptr,
                      route, false);
    }
    all_.push_back(sg4::Comm::sendto_init(found->second.first, found->second.second)
                       ->set_payload_size(static_cast<std::uint64_t>(bytes)));
    return all_.back();
  }

  void connect(std::size_t r) {
    const RankProgram& rank = of_.program.ranks[r];
    const auto after = [&](const sg4::ActivityPtr& later, Range waits) {
      for (const Wait& wait : rank.waits_of(waits))
        depends(later, (wait.on == Wait::On::compute ? computes_ : comms_)[r][static_cast<std::size_t>(wait.step)]);
    };
    for (std::size_t i = 0; i < rank.compute.size(); ++i) {
      after(computes_[r][i], rank.compute[i].waits);
      if (i > 0) depends(computes_[r][i], computes_[r][i - 1]);
    }
    for (std::size_t i = 0; i < rank.comm.size(); ++i)
      after(comms_[r][i], rank.comm[i].waits);
  }

  // SimGrid refuses a dependency that is there already.
  void depends(const sg4::ActivityPtr& later, const sg4::ActivityPtr& earlier) {
    if (!known_.insert({earlier.get(), later.get()}).second) return;
    if (auto* exec = dynamic_cast<sg4::Exec*>(earlier.get())) {
      exec->add_successor(later);
    } else {
      dynamic_cast<sg4::Comm&>(*earlier).add_successor(later);
    }
  }

  const Case& of_;
  const NetworkHops hops_;
  sg4::NetZone& zone_;
  std::string name_;
  std::vector<const sg4::Link*> links_;
  std::vector<sg4::Host*> hosts_;
  std::map<std::pair<int, int>, std::pair<sg4::Host*, sg4::Host*>> ways_;
  std::vector<std::vector<sg4::ActivityPtr>> computes_;  // [rank][index]
  std::vector<std::vector<sg4::ActivityPtr>> comms_;
  std::vector<sg4::ActivityPtr> by_message_;
  std::vector<sg4::ActivityPtr> all_;
  std::set<std::pair<sg4::Activity*, sg4::Activity*>> known_;
};

// The step of each, in seconds.
std::vector<double> run_in_simgrid(const std::vector<Case>& cases) {
  std::string name = "oracle";
  std::vector<char*> arguments{name.data(), nullptr};
  int count = 1;
  sg4::Engine engine(&count, arguments.data());
  engine.set_config("network/model:CM02");
  engine.set_config("network/crosstraffic:0");
  engine.set_config("surf/precision:1e-12");
  engine.set_config("maxmin/precision:1e-12");
  sg4::NetZone* zone = sg4::create_full_zone("all");
  std::vector<InSimGrid> all;
  all.reserve(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i)
    all.emplace_back(*zone, cases[i], std::to_string(i));
  zone->seal();
  for (InSimGrid& one : all)
    one.start();
  engine.run();
  std::vector<double> ends;
  for (const InSimGrid& one : all)
    ends.push_back(one.end());
  return ends;
}

// Milliseconds and gigabytes: SimGrid counts in seconds.
Case random_case(Dice& dice) {
  Program program = random_program(dice);
  const auto time = [&] { return us(dice.roll(1, 9000)); };
  const CostModel costs(action_times(time(), time(), time()), Link{}, {2'000'000, 2'000'000, 4'000'000});
  NetworkModel network = random_network(dice, program.layout.pp());
  network.streams = CommStreams::unordered;
  network.protocol = {};
  network.compute_scale.clear();
  for (NetworkTier& tier : network.tiers)
    tier.latency = SimTime(0);
  for (NetworkResource& resource : network.resources)
    resource.bytes_per_s /= 1000;  // so that moving a unit takes as long as computing
  return {std::move(program), costs, std::move(network)};
}

Case large_case(Policy policy) {
  const Layout layout(16, 4, 64);
  const DepthMap depth(256, 32, DepthMap::even_cuts(256, 256, 64), Residual::attnres_block);
  const CostModel costs(action_times(us(1000), us(1000), us(1000)), Link{}, {2'000'000, 2'000'000, 4'000'000});
  NetworkModel network = uniform_network(16, 4e10, SimTime(0));
  NetworkTier& tier = network.tiers.front();
  for (std::size_t r = 0; r < 16; ++r) {  // four ranks leave through one card
    tier.egress[r] = tier.egress[r / 4 * 4];
    tier.ingress[r] = tier.ingress[r / 4 * 4];
  }
  return {lower(interleaved(layout, 16), depth, policy), costs, std::move(network)};
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

TEST_CASE("whole programs on shared networks take as long as SimGrid says", "[simgrid]") {
  Dice dice(642);
  std::vector<Case> cases;
  for (int round = 0; round < 40; ++round)
    cases.push_back(random_case(dice));
  const std::vector<double> expected = run_in_simgrid(cases);
  double worst = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i, describe(cases[i].program));
    const double found =
        static_cast<double>(simulate_network(cases[i].program, cases[i].costs, cases[i].network).step.count()) * 1e-12;
    const double difference = std::abs(found - expected[i]) / expected[i];
    REQUIRE(difference <= 1e-6);
    worst = std::max(worst, difference);
  }
  WARN("largest difference " << worst << " of a step");
}

// Not run by default: test_simgrid "[bench]".
TEST_CASE("a large program in SimGrid and here", "[.][bench]") {
  std::vector<Case> cases;
  cases.push_back(large_case(Policy::cached));
  const double begin = processor_seconds();
  const double expected = run_in_simgrid(cases).front();
  const double between = processor_seconds();
  const Timeline timeline = simulate_network(cases[0].program, cases[0].costs, cases[0].network);
  const double end = processor_seconds();
  WARN("P=16 V=4 M=64 cached, " << cases[0].program.messages.size() << " messages, four ranks to a card: SimGrid "
                                << between - begin << " s, here " << end - between << " s, "
                                << (between - begin) / (end - between) << " times as long");
  // So many shares in a row magnify what is rounded: a rate higher by one part in 1e12 moves this step by 1e-4.
  CHECK(static_cast<double>(timeline.step.count()) * 1e-12 == Approx(expected).epsilon(5e-4));
}

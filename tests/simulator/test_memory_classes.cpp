// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <sstream>

#include "cache/support/programs.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/memory.hpp"
#include "plumb/simulator/memory_classes.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/simulator/trace.hpp"
#include "simulator/support/models.hpp"
#include "simulator/support/trace_rules.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

// What `curve` says at an instant.
template <class Curve>
auto at(const Curve& curve, SimTime when) {
  const auto after = std::upper_bound(curve.begin(), curve.end(), when,
                                      [](SimTime time, const auto& point) { return time < point.at; });
  return *(after - 1);
}

std::int64_t in_slots(const MemoryBytes& bytes) {
  std::int64_t sum = 0;
  for (const MemoryClass what : {MemoryClass::blocks, MemoryClass::partials, MemoryClass::block_gradients,
                                 MemoryClass::passing_gradients, MemoryClass::receiving, MemoryClass::sending})
    sum += bytes[what];
  return sum;
}

}  // namespace

TEST_CASE("at every instant the bytes by class are those of the occupied slots and of the activations", "[simulator]") {
  Dice dice(710);
  std::int64_t most_receiving = 0;
  std::int64_t most_sending = 0;
  for (int round = 0; round < 40; ++round) {
    const Program program = random_program(dice, {.pp = 5, .vp = 3, .sublayers = 24, .microbatches = 5});
    CAPTURE(describe(program));
    const Timeline timeline = simulate(program, random_model(dice, program.layout.num_chunks()));
    const auto chunks = static_cast<std::size_t>(program.layout.num_chunks());
    const DeviceBytes device{
        .unit = {10, 10, 30}, .activations = std::vector<std::int64_t>(chunks, 1000), .always = {}};
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      const RankId rank(r);
      const std::vector<MemoryPoint> units = memory_curve(program, timeline, rank);
      const std::vector<MemoryBytesPoint> bytes = memory_by_class(program, timeline, rank, device);
      for (const MemoryPoint& point : units) {
        const MemoryBytes now = at(bytes, point.at).bytes;
        REQUIRE(in_slots(now) == 10 * point.resident.value_slots() + 30 * point.resident.gradient_slots());
        REQUIRE(now[MemoryClass::activations] == 1000 * point.resident.activation_chunks);
      }
      REQUIRE(bytes.back().bytes.total() == 0);
      const ClassPeak peak = class_peak(bytes);
      REQUIRE(at(bytes, peak.at).bytes == peak.live);
      most_receiving = std::max(most_receiving, peak.each[MemoryClass::receiving]);
      most_sending = std::max(most_sending, peak.each[MemoryClass::sending]);
    }
  }
  CHECK(most_receiving > 0);
  CHECK(most_sending > 0);
}

TEST_CASE("what is there all the time is in every instant, and the peak says what is live", "[simulator]") {
  // P = 2, M = 2, 1F1B: rank 0 holds two microbatches of its chunk, rank 1 one.
  const Program program =
      lower(one_f_one_b(Layout(2, 1, 2)), DepthMap(2, 1, {1, 2}, Residual::standard), Policy::standard);
  const Timeline timeline = simulate(program, latency_only(us(40)));
  MemoryBytes always;
  always[MemoryClass::weights] = 7;
  always[MemoryClass::optimizer] = 42;
  const DeviceBytes device{.unit = {1, 1, 2}, .activations = {100, 300}, .always = {always, always}};
  const std::vector<ClassPeak> peaks = class_peaks(program, timeline, device);
  CHECK(peaks[0].each[MemoryClass::activations] == 200);
  CHECK(peaks[1].each[MemoryClass::activations] == 300);
  for (const ClassPeak& peak : peaks) {
    CHECK(peak.live[MemoryClass::weights] == 7);
    CHECK(peak.live[MemoryClass::optimizer] == 42);
    CHECK(peak.live[MemoryClass::block_gradients] == 0);
  }
  // Rank 1's first hidden state is on its way for 40 us after F0 at 1000 us.
  const std::vector<MemoryBytesPoint> curve = memory_by_class(program, timeline, RankId(1), device);
  CHECK(at(curve, us(1020)).bytes[MemoryClass::receiving] == 1);
  CHECK(at(curve, us(1020)).bytes[MemoryClass::partials] == 0);
  CHECK(at(curve, us(1040)).bytes[MemoryClass::partials] == 1);
}

TEST_CASE("a trace with the bytes of devices keeps the rules and has a track per class", "[simulator]") {
  const Program program = small_program(Policy::cached);
  const CostModel costs = unit_time(us(400));
  const auto chunks = static_cast<std::size_t>(program.layout.num_chunks());
  TraceOptions options;
  options.device =
      DeviceBytes{.unit = costs.bytes(), .activations = std::vector<std::int64_t>(chunks, 1 << 20), .always = {}};
  std::ostringstream out;
  write_trace(out, program, costs, simulate(program, costs), options);
  const TraceFindings findings = check_trace(out.str());
  CHECK(findings.faults == std::vector<std::string>{});
  for (const char* key : {"device MiB", "\"activations\":1.000", "\"block gradients\":", "\"receiving\":"})
    CHECK(out.str().find(key) != std::string::npos);
}

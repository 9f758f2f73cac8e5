// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <nlohmann/json.hpp>

#include "plumb/simulator/compare.hpp"
#include "plumb/simulator/report.hpp"

namespace plumb {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Counts per microbatch are whole unless a message is missing somewhere; whole ones are written as integers.
OrderedJson units(double count) {
  if (count == std::floor(count)) return static_cast<std::int64_t>(count);
  return count;
}

OrderedJson bubble_json(const Bubble& bubble) {
  return {{"warmup", to_us(bubble.warmup)},
          {"steady", to_us(bubble.steady)},
          {"cooldown", to_us(bubble.cooldown)},
          {"waiting", to_us(bubble.waiting)}};
}

OrderedJson rank_json(const RankReport& rank) {
  const MemoryPeak& memory = rank.memory;
  return {
      {"rank", rank.rank.value},
      {"busy_us", to_us(rank.busy)},
      {"forward_us", to_us(rank.work.forward)},
      {"backward_us", to_us(rank.work.backward)},
      {"backward_weight_us", to_us(rank.work.backward_weight)},
      {"idle_us", to_us(rank.bubble.total())},
      {"exposed_comm_us", to_us(rank.bubble.waiting)},
      {"exposed_us",
       {{"wait", to_us(rank.exposed.wait)}, {"queue", to_us(rank.exposed.queue)}, {"wire", to_us(rank.exposed.wire)}}},
      {"bubble_us", bubble_json(rank.bubble)},
      {"peak_activation_chunks", memory.each.activation_chunks},
      {"peak_resident_units", memory.each.block_units},
      {"peak_partial_units", memory.each.partial_units},
      {"peak_gradient_units", memory.each.gradient_units},
      {"peak_passing_gradient_units", memory.each.passing_gradient_units},
      {"peak_bytes", memory.bytes},
      {"at_peak_bytes",
       {{"at_us", to_us(memory.at)},
        {"resident_units", memory.live.block_units},
        {"partial_units", memory.live.partial_units},
        {"gradient_units", memory.live.gradient_units},
        {"passing_gradient_units", memory.live.passing_gradient_units},
        {"activation_chunks", memory.live.activation_chunks}}}};
}

OrderedJson hop_json(const HopReport& hop) {
  return {{"from_chunk", hop.from_chunk.value},   {"to_chunk", hop.to_chunk.value},
          {"from_rank", hop.from_rank.value},     {"to_rank", hop.to_rank.value},
          {"units", units(hop.forward_units)},    {"backward_units", units(hop.backward_units)},
          {"bytes_per_step", hop.bytes_per_step}, {"queued_us", to_us(hop.queued)},
          {"on_wire_us", to_us(hop.on_wire)}};
}

}  // namespace

std::string to_json(const SimReport& report) {
  OrderedJson ranks = OrderedJson::array();
  for (const RankReport& rank : report.ranks) {
    ranks.push_back(rank_json(rank));
  }
  OrderedJson hops = OrderedJson::array();
  for (const HopReport& hop : report.hops) {
    hops.push_back(hop_json(hop));
  }
  const OrderedJson json{{"step_us", to_us(report.step)},
                         {"bubble_us", bubble_json(report.bubble)},
                         {"bubble_over_step", report.bubble_over_step},
                         {"bubble_over_ideal", report.bubble_over_ideal},
                         {"ranks", ranks},
                         {"hops", hops},
                         {"traffic",
                          {{"forward_units_per_microbatch", units(report.forward_units_per_microbatch)},
                           {"backward_units_per_microbatch", units(report.backward_units_per_microbatch)},
                           {"bytes_per_step", report.bytes_per_step}}},
                         {"checks",
                          {{"traffic_equals_formula", report.traffic_equals_formula},
                           {"memory_within_slots", report.memory_within_slots},
                           {"times_add_up", report.times_add_up}}}};
  return json.dump();
}

std::string to_json(const std::vector<PolicyRow>& rows) {
  OrderedJson json = OrderedJson::array();
  for (const PolicyRow& row : rows) {
    const MemoryPeak worst = worst_peak(row.report);
    json.push_back({{"cache", to_string(row.policy)},
                    {"step_us", to_us(row.report.step)},
                    {"overhead_over_standard", row.overhead_over_standard},
                    {"bubble_over_step", row.report.bubble_over_step},
                    {"forward_units_per_microbatch", units(row.report.forward_units_per_microbatch)},
                    {"bytes_per_step", row.report.bytes_per_step},
                    {"exposed_comm_us", to_us(row.report.bubble.waiting)},
                    {"peak_resident_units", worst.each.block_units},
                    {"peak_gradient_units", worst.each.gradient_units},
                    {"peak_bytes", worst.bytes}});
    if (row.device_peak.bytes() > 0) json.back()["device_peak_bytes"] = row.device_peak.bytes();
  }
  return json.dump();
}

}  // namespace plumb

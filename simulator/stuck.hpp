// SPDX-License-Identifier: Apache-2.0
//
// stuck.hpp: says who waits for what when a simulation can go no further.
#pragma once

#include <cstdint>
#include <vector>

#include "channel_order.hpp"
#include "step_graph.hpp"

namespace plumb {

// Throws SimulationStuck. pending: events still awaited per step; gates: conditions still missing per message.
[[noreturn]] void throw_stuck(const Program& program, const StepGraph& graph, const std::vector<std::int32_t>& pending,
                              const std::vector<std::uint8_t>& gates, const ChannelOrders& channels);

}  // namespace plumb

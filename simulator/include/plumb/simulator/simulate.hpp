// SPDX-License-Identifier: Apache-2.0
//
// simulate.hpp: runs a Program in virtual time.
//
// Each rank computes its list in order; a computation starts when the rank is free and its waits have happened. A
// message may start when the sender has its segments and the receive is posted, which happens as soon as the slots it
// fills are free. With a bandwidth, messages go through NicArbiter: one full- or half-duplex network end per rank. With
// a latency only they occupy nothing. Adding and zeroing take no time. Integer time, no randomness: the same input
// gives the same bits. Linear in the number of steps but for the queue of pending events.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "plumb/cache/arbiter.hpp"
#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

// In which order the messages from one rank to another may start.
enum class ChannelOrder : std::uint8_t {
  by_readiness,   // none but the arbiter's: urgent first, then the earlier ready, then program order
  fifo_per_lane,  // program order within each lane, as transports with two queues per edge do it
  fifo_merged,    // program order, both lanes in one queue
  single_stream   // program order, one queue per rank for all it sends and receives
};

struct SimOptions {
  ChannelOrder order = ChannelOrder::by_readiness;
  Duplex duplex = Duplex::full;  // half: a rank sends or receives one message at a time
  bool urgent_first = true;      // false: to the arbiter all messages are urgent
  // A rank notices what has left and what has arrived only between its computations, as one without a thread for
  // communication would.
  bool communication_waits_for_compute = false;
};

// Nothing can happen any more and steps remain: the program deadlocks. Programs made by lower() never do.
class SimulationStuck : public std::runtime_error {
 public:
  struct Step {
    RankId rank;
    std::string what;         // "3B1", "1SEND_F4 to rank 2"
    std::string waiting_for;  // in the same words
  };
  // `waiting` may be shortened for the text; `num_waiting` counts all.
  SimulationStuck(std::vector<Step> waiting, std::size_t num_waiting);
  const std::vector<Step>& waiting() const { return waiting_; }

 private:
  std::vector<Step> waiting_;
};

// REQUIRES indices in range (verify_program). Throws InputError when the model does not fit the program's chunks, when
// the two ends of a message are not there once or differ in segments, or when the step would take more than 53 days;
// SimulationStuck.
Timeline simulate(const Program& program, const CostModel& costs, const SimOptions& options = {});

}  // namespace plumb

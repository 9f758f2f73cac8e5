// SPDX-License-Identifier: Apache-2.0
//
// rehearse.hpp: runs a program on the real runtime with emulated accelerators and links, and measures it.
//
// Executor, block store, transport and lowered program are those of training. Only two things are emulated: a
// computation is a sleep (rehearsal_stage.hpp), and a message takes as long as on links of the given shape (comm's
// shaped_transport.hpp). If there is a baseline program, the two alternate, step by step, in the same ranks. All ranks
// start a step at one agreed moment of the machine's clock. It is NOT a simulator: delays of threads, sleeps and locks
// are in the result, as in training. Ownership: the caller's objects outlive the call. Threads: one call per rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/comm/control.hpp"
#include "plumb/comm/emulated_links.hpp"
#include "plumb/comm/transport.hpp"
#include "plumb/rehearsal/rehearsal_stage.hpp"
#include "plumb/runtime/block_store.hpp"
#include "plumb/runtime/executor.hpp"
#include "plumb/runtime/step_log.hpp"
#include "plumb/simulator/cost_model.hpp"

namespace plumb {

// Equal on all ranks.
struct RehearsalPlan {
  std::shared_ptr<const Program> program;
  std::shared_ptr<const Program> baseline = nullptr;  // alternates with `program`
  CostModel costs;
  SlotShape shape;  // of the real payload; the costs decide how long it takes
  int steps = 5;    // measured ones of each program, after one to warm up
  bool communication_waits_for_compute = false;
  bool urgent_first = true;    // of the emulated links; false: whatever was posted first
  bool single_stream = false;  // of the emulated links: a rank sends or receives one message at a time, as listed
  std::chrono::nanoseconds wait_limit = std::chrono::seconds(60);
  std::chrono::nanoseconds longest_extra{0};  // random, on top of every computation
  std::uint64_t seed = 0;
};

// The shape of links on which the plan's payload takes the model's times.
LinkShape link_shape(const RehearsalPlan& plan);

// Messages in flight at most, of the whole job: for EmulatedLinks.
std::size_t most_messages(const RehearsalPlan& plan);

// Bytes of the slots of all ranks together, and of what the emulation itself needs.
std::int64_t memory_needed_bytes(const RehearsalPlan& plan);

struct MeasuredStep {
  StepRecord record;
  StepResult result;
  std::int64_t agreed_start_ns = 0;
};

// What one rank brings home.
struct RankOutcome {
  std::vector<MeasuredStep> program;
  std::vector<MeasuredStep> baseline;
  std::int64_t num_checked = 0;
  std::int64_t num_mismatches = 0;
  std::string first_mismatch;
};

// What a rank is doing, for others to look at when one stalls.
using RankSpot = StepLog::Spot;

struct RankPlace {
  RankId rank;
  Transport& transport;
  ControlPlane& control;
  EmulatedLinks* links = nullptr;                // null: the transport's own times
  std::span<RankSpot> spots{};                   // [rank], shared by all ranks; empty: nobody looks
  std::function<void(Play&)> prepare = nullptr;  // called once before the first step; for planted faults
  // After every measured step of `program` on this rank: number, from 1, and when it ended after the agreed start.
  std::function<void(int, std::chrono::nanoseconds)> on_step = nullptr;
};

// Collective. Throws as the executor does; a StallError's text is followed by the rank that holds everything up.
RankOutcome rehearse_on_rank(const RehearsalPlan& plan, const RankPlace& place);

// The rank that has been inside its current computation for longest: its inputs were ready, so the others wait for it.
// Empty when all ranks wait for messages.
std::string who_holds_up(const Program& program, std::span<const RankSpot> spots, std::int64_t now_ns);

// For the way from rank to rank. Throws InputError when the bytes are no outcome.
std::string to_bytes(const RankOutcome& outcome);
RankOutcome outcome_from_bytes(std::string_view bytes);

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// executor.hpp: runs one rank's part of a Program in real time, over a Transport, with the host's Stages.
//
// Two workers: the calling thread computes; a thread of the executor communicates (it owns the Transport during a step
// and sleeps between steps). The compute worker waits only for what its next computation reads; forwarding and adding
// never wait for it. It is NOT a scheduler: order, messages, slots and sums are the Program's, and any two runs give
// the same bits. After the first step of a program no step allocates. Every wait has a limit, so a step ends or throws:
// what the Stage threw, or a RunError. docs/threads.md tells who touches what. Ownership: stages, transport, control
// and observer belong to the caller and outlive the executor. Threads: one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/comm/control.hpp"
#include "plumb/comm/transport.hpp"
#include "plumb/runtime/block_store.hpp"
#include "plumb/runtime/clock.hpp"
#include "plumb/runtime/observer.hpp"
#include "plumb/runtime/stage.hpp"

namespace plumb {

// [chunk]: the stage that computes it; null for chunks of other ranks.
using StageTable = std::vector<Stage*>;

// Whether slots that hold nothing are filled with NaN, so that a read too early or too late shows in the loss.
enum class Poison : std::uint8_t { in_debug_builds, always, never };

struct ExecutorOptions {
  // The longest that a step waits for one thing. Also the limit of the exchange in prepare().
  std::chrono::nanoseconds wait_limit = std::chrono::seconds(300);
  // Each message gets one more segment that names it, with a checksum, and is checked on arrival. All ranks alike.
  bool verify_messages = false;
  Poison poison = Poison::in_debug_builds;
  std::shared_ptr<const Clock> clock = nullptr;  // null: a SteadyClock
  StepObserver* observer = nullptr;
};

// Payload bytes and messages as the transport counted them, never as planned; trailers of verify_messages left out.
struct Traffic {
  std::uint64_t forward_bytes = 0;
  std::uint64_t backward_bytes = 0;
  std::uint64_t num_messages = 0;
  std::uint64_t total_bytes() const { return forward_bytes + backward_bytes; }
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

struct StepResult {
  std::int64_t step = 0;  // counts all steps of this executor from 0
  Traffic sent;
  Traffic received;
  std::int64_t num_contributions = 0;  // gradient contributions counted on this rank
  // The most that the rank's stages kept at once between I and W (Stage::deferred_bytes), on top of the slots.
  std::size_t peak_deferred_bytes = 0;
  std::chrono::nanoseconds wall{0};
};

using ProgramHandle = Id<struct ProgramHandleTag>;

class Executor {
 public:
  // `transport` may be null if all programs have one rank; `control` may be null, then nobody compares programs.
  // Throws InputError when the transport's rank is not `rank`.
  Executor(RankId rank, StageTable stages, Transport* transport, ControlPlane* control, ExecutorOptions options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Collective over the ranks if there is a control plane: compares fingerprints before anything is sent; PlanMismatch
  // on every rank if they differ. Reserves slots and messages; slots grow to the largest program's and are shared by
  // all. Throws InputError for a program that does not fit its own vectors, the transport's size or the stages.
  ProgramHandle prepare(std::shared_ptr<const Program> program, const SlotShape& shape);

  // Frees what prepare() made for this program; slots stay.
  void discard(ProgramHandle handle);

  // One step. Throws std::logic_error after a failed step or for an unknown handle.
  StepResult run(ProgramHandle handle);

  // For inspection while idle, or from a Stage.
  const BlockStore& store() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plumb

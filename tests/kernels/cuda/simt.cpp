// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/simt.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace plumb::testing::simt {

namespace {

constexpr std::size_t kStackBytes = std::size_t{1} << 17;
constexpr int kMostThreads = 1024;

// AddressSanitizer wants to know on which stack we are.
void leave([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* bottom, [[maybe_unused]] std::size_t size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fake_stack, bottom, size);
#endif
}
void arrive([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** from,
            [[maybe_unused]] std::size_t* from_size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, from, from_size);
#endif
}

// getcontext returns twice as far as a compiler knows, so nothing else may live around it.
[[gnu::noinline]] void initialise(ucontext_t& context) { getcontext(&context); }

}  // namespace

int Thread::num_threads() const { return machine_.shape_.threads; }
std::int64_t Thread::block() const { return machine_.block_; }

void Thread::barrier(const char* file, int line) { machine_.pause(index_, Machine::State::at_barrier, {file, line}); }

void Thread::act(WarpAct act) {
  machine_.act_of(index_) = act;
  machine_.pause(index_, Machine::State::in_warp, act.site);
}

void Thread::copy(const Shared<std::uint32_t>& to, int i, const void* from, bool there, int words, Site site) {
  if (there) {
    require_aligned(from, static_cast<std::size_t>(4 * words));
  }
  machine_.memory_.copy(index_, to.at(i, words, site), there ? from : nullptr, words, site);
}
void Thread::commit_copies() { machine_.memory_.commit(index_); }
void Thread::wait_copies(int groups) { machine_.memory_.wait(index_, groups); }

void Thread::require_aligned(const void* p, std::size_t bytes) const {
  if (reinterpret_cast<std::uintptr_t>(p) % bytes != 0) {
    machine_.fail(FaultKind::misaligned, index_, {"global memory", 0},
                  "accesses " + std::to_string(bytes) + " bytes at an address that is no multiple of that");
  }
}

Machine::Machine(Order order, std::uint32_t seed) : order_(order), random_(seed) {}
Machine::~Machine() = default;

void Machine::run(const std::function<void(Thread&)>& body, const cuda_detail::LaunchShape& shape) {
  if (shape.blocks < 1 || shape.threads < 1 || shape.threads > kMostThreads ||
      shape.threads % cuda_detail::kWarp != 0 || shape.shared_bytes < 0 || shape.shared_bytes > kMostSharedBytes) {
    throw Fault(FaultKind::bad_launch, "no GPU takes this launch: " + std::to_string(shape.blocks) + " blocks of " +
                                           std::to_string(shape.threads) + " threads, " +
                                           std::to_string(shape.shared_bytes) + " bytes of shared memory");
  }
  ++num_launches_;
  body_ = &body;
  shape_ = shape;
  const auto threads = static_cast<std::size_t>(shape.threads);
  if (fibers_.size() < threads) {
    fibers_.resize(threads);
  }
  sequence_.resize(threads);
  std::iota(sequence_.begin(), sequence_.end(), 0);
  if (order_ == Order::descending) {
    std::reverse(sequence_.begin(), sequence_.end());
  }
  for (block_ = 0; block_ < shape.blocks; ++block_) {
    try {
      run_block();
    } catch (...) {
      fibers_.clear();  // those that wait have nothing to destroy
      throw;
    }
  }
}

void Machine::run_block() {
  memory_.start(block_, shape_.shared_bytes, shape_.threads);
  for (const int index : sequence_) {
    fibers_[static_cast<std::size_t>(index)].state = State::ready;
  }
  for (;;) {
    if (order_ == Order::shuffled) {
      std::shuffle(sequence_.begin(), sequence_.end(), random_);
    }
    bool all_done = true;
    for (const int index : sequence_) {
      Fiber& own = fibers_[static_cast<std::size_t>(index)];
      if (own.state == State::ready) {
        resume(index);
        if (fault_) {
          std::rethrow_exception(std::exchange(fault_, nullptr));
        }
      }
      all_done = all_done && own.state == State::done;
    }
    if (all_done) {
      memory_.finish();
      return;
    }
    const bool some_warp = join_warps();
    if (!some_warp && !join_block()) {
      report_stuck();
    }
  }
}

// A warp goes on when all its lanes have come to the same act.
bool Machine::join_warps() {
  bool some = false;
  for (int first = 0; first < shape_.threads; first += cuda_detail::kWarp) {
    const WarpAct& one = act_of(first);
    bool together = true;
    for (int lane = 0; lane < cuda_detail::kWarp && together; ++lane) {
      const Fiber& fiber = fibers_[static_cast<std::size_t>(first + lane)];
      const WarpAct& other = fiber.act;
      together = fiber.state == State::in_warp && other.kind == one.kind && other.site.line == one.site.line &&
                 std::strcmp(other.site.file, one.site.file) == 0 && other.variant == one.variant &&
                 other.count == one.count;
    }
    if (together) {
      act_as_one(first);
      for (int lane = 0; lane < cuda_detail::kWarp; ++lane) {
        fibers_[static_cast<std::size_t>(first + lane)].state = State::ready;
      }
      some = true;
    }
  }
  return some;
}

// The block goes on when all its threads have come to the same barrier.
bool Machine::join_block() {
  const Fiber& one = fibers_[0];
  for (int k = 0; k < shape_.threads; ++k) {
    const Fiber& other = fibers_[static_cast<std::size_t>(k)];
    if (other.state != State::at_barrier || other.site.line != one.site.line ||
        std::strcmp(other.site.file, one.site.file) != 0) {
      return false;
    }
  }
  for (int k = 0; k < shape_.threads; ++k) {
    fibers_[static_cast<std::size_t>(k)].state = State::ready;
  }
  memory_.block_barrier();
  return true;
}

void Machine::report_stuck() const {
  int waiting = -1;
  for (int k = 0; k < shape_.threads; ++k) {
    const Fiber& own = fibers_[static_cast<std::size_t>(k)];
    if (own.state == State::in_warp) {
      fail(FaultKind::divergent_warp, k, own.site,
           "waits for a shuffle or another act of its warp that not all lanes reach");
    }
    if (own.state == State::at_barrier && waiting < 0) {
      waiting = k;
    }
  }
  for (int k = 0; k < shape_.threads; ++k) {
    const Fiber& own = fibers_[static_cast<std::size_t>(k)];
    const Site site = fibers_[static_cast<std::size_t>(waiting)].site;
    if (own.state == State::done) {
      fail(FaultKind::divergent_barrier, waiting, site,
           "waits at a barrier, but thread " + std::to_string(k) + " has left the kernel");
    }
    if (own.site.line != site.line || std::strcmp(own.site.file, site.file) != 0) {
      fail(FaultKind::divergent_barrier, waiting, site,
           "waits at a barrier, but thread " + std::to_string(k) + " waits at another, line " +
               std::to_string(own.site.line));
    }
  }
  throw std::logic_error("simt: nothing can run and nothing is wrong");
}

void Machine::resume(int index) {
  Fiber& own = fibers_[static_cast<std::size_t>(index)];
  if (!own.started) {
    own.stack.reset(new char[kStackBytes]);
    initialise(own.context);
    own.context.uc_stack.ss_sp = own.stack.get();
    own.context.uc_stack.ss_size = kStackBytes;
    own.context.uc_link = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&own.context, reinterpret_cast<void (*)()>(&Machine::enter), 2,
                static_cast<unsigned>(self & 0xffffffffu),
                static_cast<unsigned>(static_cast<std::uint64_t>(self) >> 32));
    own.started = true;
  }
  entering_ = index;
  leave(&scheduler_fake_stack_, own.stack.get(), kStackBytes);
  swapcontext(&scheduler_, &own.context);
  arrive(scheduler_fake_stack_, nullptr, nullptr);
}

void Machine::pause(int index, State state, Site site) {
  Fiber& own = fibers_[static_cast<std::size_t>(index)];
  own.state = state;
  own.site = site;
  leave(&own.fake_stack, scheduler_bottom_, scheduler_size_);
  swapcontext(&own.context, &scheduler_);
  arrive(own.fake_stack, &scheduler_bottom_, &scheduler_size_);
}

void Machine::enter(unsigned low, unsigned high) {
  auto* machine = reinterpret_cast<Machine*>(static_cast<std::uintptr_t>((std::uint64_t{high} << 32) | low));
  arrive(nullptr, &machine->scheduler_bottom_, &machine->scheduler_size_);
  machine->fiber_main(machine->entering_);
}

// One fiber serves its thread index in one block after the other.
void Machine::fiber_main(int index) {
  for (;;) {
    try {
      Thread thread(*this, index);
      (*body_)(thread);
    } catch (...) {
      fault_ = std::current_exception();
    }
    pause(index, State::done, {});
  }
}

}  // namespace plumb::testing::simt

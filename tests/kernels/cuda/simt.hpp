// SPDX-License-Identifier: Apache-2.0
// simt.hpp: runs the body of a GPU kernel on the host, one block after the other, and finds what a GPU would not tell.
//
// The threads of a block are fibers on one thread of the machine; a fiber runs until it waits for others: at a barrier
// or where a warp acts as one (shuffle, matrices, multiply). Found and thrown as Fault: shared memory accessed out of
// bounds, read before it is written or before a copy into it was waited for, or touched by two threads with no barrier
// between them, one of them writing (shuffles order no memory); copies never waited for; barriers and acts of a warp
// that not all threads reach; misaligned accesses. It is NOT a model of time, caches or of races in global memory.
// Results are a function of the operands and the order.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <ucontext.h>

#include "cuda/execution.hpp"
#include "kernels/cuda/simt_memory.hpp"
#include "plumb/kernels/number_formats.hpp"

namespace plumb::testing::simt {

/// In which order the fibers run between two barriers. A correct kernel gives the same bits in any.
enum class Order { ascending, descending, shuffled };

class Machine;

/// What a lane brings to where its warp acts as one: all lanes with the same kind, site, variant and count.
struct WarpAct {
  enum Kind { none, barrier, shuffle, matrices, multiply };
  Kind kind = none;
  Site site{};
  int variant = 0;  // the mask; whether transposed; whether bf16
  int count = 0;
  float* values = nullptr;
  std::int64_t row = 0;  // of the lane's matrix row, in words
  std::uint32_t* out = nullptr;
  const std::uint32_t* a = nullptr;
  const std::uint32_t* b = nullptr;
};

/// Typed window of the block's shared memory; every access is checked.
template <class T>
class Shared {
 public:
  static_assert(sizeof(T) == 4);
  Shared(Machine& machine, int thread, int offset_bytes, int count)
      : machine_(machine), thread_(thread), offset_bytes_(offset_bytes), count_(count) {}
  T get(int i, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const;
  void set(int i, T value, const char* file = __builtin_FILE(), int line = __builtin_LINE());
  cuda_detail::Words4 get4(int i, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    return words<cuda_detail::Words4, 4>(i, {file, line});
  }
  cuda_detail::Words2 get2(int i, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    return words<cuda_detail::Words2, 2>(i, {file, line});
  }

 private:
  friend class Thread;
  std::int64_t at(int i, int words, Site site) const;  // of the first of so many words, aligned to them
  template <class W, int N>
  W words(int i, Site site) const;

  Machine& machine_;
  int thread_;
  int offset_bytes_;
  int count_;
};

/// The X of a kernel body (execution.hpp).
class Thread {
 public:
  Thread(Machine& machine, int index) : machine_(machine), index_(index) {}

  int thread() const { return index_; }
  int num_threads() const;
  std::int64_t block() const;
  void barrier(const char* file = __builtin_FILE(), int line = __builtin_LINE());
  void warp_barrier(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    act({.kind = WarpAct::barrier, .site = {file, line}});
  }
  template <int N>
  void shuffle_xor(float (&values)[N], int mask, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    act({.kind = WarpAct::shuffle, .site = {file, line}, .variant = mask, .count = N, .values = values});
  }

  void copy16(const Shared<std::uint32_t>& to, int i, const void* from, bool there = true,
              const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    copy(to, i, from, there, 4, {file, line});
  }
  void copy8(const Shared<std::uint32_t>& to, int i, const void* from, bool there = true,
             const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    copy(to, i, from, there, 2, {file, line});
  }
  void commit_copies();
  template <int kGroups>
  void wait_copies() {
    wait_copies(kGroups);
  }

  template <bool kTransposed>
  cuda_detail::Words4 load_matrices(const Shared<std::uint32_t>& from, int i, const char* file = __builtin_FILE(),
                                    int line = __builtin_LINE()) {
    cuda_detail::Words4 out{};
    act({.kind = WarpAct::matrices,
         .site = {file, line},
         .variant = kTransposed ? 1 : 0,
         .row = from.at(i, 4, {file, line}),
         .out = out.w});
    return out;
  }
  template <class V>
  void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    act({.kind = WarpAct::multiply,
         .site = {file, line},
         .variant = std::is_same_v<V, Bf16> ? 1 : 0,
         .values = d,
         .a = a,
         .b = b});
  }

  template <class T>
  Shared<T> shared(int offset_bytes, int count) {
    return {machine_, index_, offset_bytes, count};
  }

  cuda_detail::Words4 load16(const void* p) { return load<cuda_detail::Words4>(p); }
  cuda_detail::Words2 load8(const void* p) { return load<cuda_detail::Words2>(p); }
  void store16(void* p, const cuda_detail::Words4& words) { store(p, words); }

  static float widen(float value) { return value; }
  static float widen(Bf16 value) { return to_float(value); }
  static float widen(Fp16 value) { return to_float(value); }
  template <class V>
  static V narrow(float value) {
    if constexpr (sizeof(V) == 4) {
      return value;
    } else if constexpr (std::is_same_v<V, Bf16>) {
      return to_bf16(value);
    } else {
      return to_fp16(value);
    }
  }
  static float bits_to_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
  static std::uint32_t float_to_bits(float value) { return std::bit_cast<std::uint32_t>(value); }
  static float fma(float a, float b, float c) { return std::fma(a, b, c); }
  static float exp(float value) { return std::exp(value); }
  static float log(float value) { return std::log(value); }
  static float inverse_sqrt(float value) { return 1.0f / std::sqrt(value); }

 private:
  void act(WarpAct act);
  void copy(const Shared<std::uint32_t>& to, int i, const void* from, bool there, int words, Site site);
  void wait_copies(int groups);
  void require_aligned(const void* p, std::size_t bytes) const;
  template <class W>
  W load(const void* p) const {
    require_aligned(p, sizeof(W));
    W words;
    std::memcpy(&words, p, sizeof words);
    return words;
  }
  template <class W>
  void store(void* p, const W& words) const {
    require_aligned(p, sizeof words);
    std::memcpy(p, &words, sizeof words);
  }

  Machine& machine_;
  int index_;
};

/// Runs launches. Keeps its fibers, so use one for many. After a Fault it is as new.
class Machine {
 public:
  explicit Machine(Order order = Order::ascending, std::uint32_t seed = 1);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  template <class Kernel>
  void operator()(const Kernel& kernel, const cuda_detail::LaunchShape& shape) {
    run([&kernel](Thread& thread) { kernel(thread); }, shape);
  }

  std::int64_t num_launches() const { return num_launches_; }
  /// What a launch is told that a block may have. Default: all there is.
  int most_shared_bytes() const { return most_shared_bytes_; }
  void limit_shared_bytes(int bytes) { most_shared_bytes_ = bytes; }
  int tokens_in_turn(std::int64_t) const { return tokens_in_turn_; }
  void take_in_turn(int tokens) { tokens_in_turn_ = tokens; }

 private:
  friend class Thread;
  template <class T>
  friend class Shared;

  static constexpr int kMostSharedBytes = 227 << 10;  // of sm_90

  enum class State { ready, at_barrier, in_warp, done };
  struct Fiber {
    std::unique_ptr<char[]> stack;
    ucontext_t context;
    void* fake_stack = nullptr;  // of AddressSanitizer
    State state = State::done;
    Site site{};
    WarpAct act{};
    bool started = false;
  };
  void run(const std::function<void(Thread&)>& body, const cuda_detail::LaunchShape& shape);
  void run_block();
  void resume(int index);
  void pause(int index, State state, Site site);  // in a fiber
  bool join_warps();
  bool join_block();
  void act_as_one(int first);
  void shuffle(int first);
  void load_matrices(int first);
  void multiply(int first);
  WarpAct& act_of(int thread) { return fibers_[static_cast<std::size_t>(thread)].act; }
  [[noreturn]] void report_stuck() const;
  static void enter(unsigned low, unsigned high);
  void fiber_main(int index);
  [[noreturn]] void fail(FaultKind kind, int thread, Site site, const std::string& what) const {
    simt::fail(kind, block_, thread, site, what);
  }

  Order order_;
  std::mt19937 random_;
  std::deque<Fiber> fibers_;  // contexts point into themselves: they stay where they are
  std::vector<int> sequence_;
  BlockMemory memory_;
  int most_shared_bytes_ = kMostSharedBytes;
  int tokens_in_turn_ = 2;
  ucontext_t scheduler_{};
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_bottom_ = nullptr;
  std::size_t scheduler_size_ = 0;
  std::exception_ptr fault_;
  const std::function<void(Thread&)>* body_ = nullptr;
  cuda_detail::LaunchShape shape_{};
  std::int64_t block_ = 0;
  std::int64_t num_launches_ = 0;
  int entering_ = 0;
};

template <class T>
T Shared<T>::get(int i, const char* file, int line) const {
  return std::bit_cast<T>(machine_.memory_.read(thread_, at(i, 1, {file, line}), {file, line}));
}

template <class T>
void Shared<T>::set(int i, T value, const char* file, int line) {
  machine_.memory_.write(thread_, at(i, 1, {file, line}), std::bit_cast<std::uint32_t>(value), {file, line});
}

template <class T>
std::int64_t Shared<T>::at(int i, int words, Site site) const {
  const std::int64_t first = machine_.memory_.at(thread_, offset_bytes_, i, count_, site);
  machine_.memory_.at(thread_, offset_bytes_, i + words - 1, count_, site);
  if (first % words != 0) {
    machine_.fail(FaultKind::misaligned, thread_, site,
                  "accesses " + std::to_string(4 * words) + " bytes of shared memory at no multiple of that");
  }
  return first;
}

template <class T>
template <class W, int N>
W Shared<T>::words(int i, Site site) const {
  const std::int64_t first = at(i, N, site);
  W out;
  for (int k = 0; k < N; ++k) {
    out.w[k] = machine_.memory_.read(thread_, first + k, site);
  }
  return out;
}

}  // namespace plumb::testing::simt

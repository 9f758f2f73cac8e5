// SPDX-License-Identifier: Apache-2.0
// simt.hpp: runs the body of a GPU kernel on the host, one block after the other, and finds what a GPU would not tell.
//
// The threads of a block are fibers on one thread of the machine; a fiber runs until it waits at a barrier or a
// shuffle. Found and thrown as Fault: shared memory accessed out of bounds, read before it is written, or touched by
// two threads between the same two barriers of the block, one of them writing (a missing barrier: shuffles order no
// memory); barriers and shuffles that not all threads reach; misaligned vector accesses to global memory. It is NOT a
// model of time, caches or of races in global memory. Results are a function of the operands and the order.
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
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <ucontext.h>

#include "cuda/execution.hpp"
#include "plumb/kernels/number_formats.hpp"

namespace plumb::testing::simt {

enum class FaultKind { out_of_bounds, unset_read, race, divergent_barrier, divergent_shuffle, misaligned, bad_launch };

class Fault : public std::runtime_error {
 public:
  Fault(FaultKind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  FaultKind kind() const { return kind_; }

 private:
  FaultKind kind_;
};

/// In which order the fibers run between two barriers. A correct kernel gives the same bits in any.
enum class Order { ascending, descending, shuffled };

/// Where in a body something is done; a line stands for the statement.
struct Site {
  const char* file;
  int line;
};

class Machine;

/// Typed window of the block's shared memory; every access is checked.
template <class T>
class Shared {
 public:
  static_assert(sizeof(T) == 4);
  Shared(Machine& machine, int thread, int offset_bytes, int count)
      : machine_(machine), thread_(thread), offset_bytes_(offset_bytes), count_(count) {}
  T get(int i, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const;
  void set(int i, T value, const char* file = __builtin_FILE(), int line = __builtin_LINE());

 private:
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
  template <int N>
  void shuffle_xor(float (&values)[N], int mask, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    shuffle(values, N, mask, {file, line});
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
  void shuffle(float* values, int count, int mask, Site site);
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

 private:
  friend class Thread;
  template <class T>
  friend class Shared;

  enum class State { ready, at_barrier, at_shuffle, done };
  struct Fiber {
    std::unique_ptr<char[]> stack;
    ucontext_t context;
    void* fake_stack = nullptr;  // of AddressSanitizer
    State state = State::done;
    Site site{};
    float* values = nullptr;
    int num_values = 0;
    int mask = 0;
    bool started = false;
  };
  // Who touched a word of shared memory since the last barrier.
  struct Word {
    std::uint32_t bits = 0;
    bool set = false;
    std::int64_t write_interval = -1;
    std::int64_t read_interval = -1;
    int writer = -1;
    int reader = -1;  // kMany: several
  };
  static constexpr int kMany = -2;

  void run(const std::function<void(Thread&)>& body, const cuda_detail::LaunchShape& shape);
  void run_block();
  void resume(int index);
  void pause(int index, State state, Site site);  // in a fiber
  bool join_warps();
  bool join_block();
  void exchange(int first);
  [[noreturn]] void report_stuck() const;
  static void enter(unsigned low, unsigned high);
  void fiber_main(int index);
  Word& word(int thread, int offset_bytes, int index, int count, Site site);
  [[noreturn]] void fail(FaultKind kind, int thread, Site site, const std::string& what) const;
  std::string where(int thread, Site site) const;

  Order order_;
  std::mt19937 random_;
  std::deque<Fiber> fibers_;  // contexts point into themselves: they stay where they are
  std::vector<int> sequence_;
  std::vector<Word> memory_;
  ucontext_t scheduler_{};
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_bottom_ = nullptr;
  std::size_t scheduler_size_ = 0;
  std::exception_ptr fault_;
  const std::function<void(Thread&)>* body_ = nullptr;
  cuda_detail::LaunchShape shape_{};
  std::int64_t block_ = 0;
  std::int64_t interval_ = 0;
  std::int64_t num_launches_ = 0;
  int entering_ = 0;
};

template <class T>
T Shared<T>::get(int i, const char* file, int line) const {
  Machine::Word& word = machine_.word(thread_, offset_bytes_, i, count_, {file, line});
  if (!word.set) {
    machine_.fail(FaultKind::unset_read, thread_, {file, line}, "reads shared memory that nobody has written");
  }
  if (word.write_interval == machine_.interval_ && word.writer != thread_) {
    machine_.fail(FaultKind::race, thread_, {file, line},
                  "reads what thread " + std::to_string(word.writer) + " wrote since the last barrier");
  }
  word.reader = word.read_interval == machine_.interval_ && word.reader != thread_ ? Machine::kMany : thread_;
  word.read_interval = machine_.interval_;
  return std::bit_cast<T>(word.bits);
}

template <class T>
void Shared<T>::set(int i, T value, const char* file, int line) {
  Machine::Word& word = machine_.word(thread_, offset_bytes_, i, count_, {file, line});
  if (word.write_interval == machine_.interval_ && word.writer != thread_) {
    machine_.fail(FaultKind::race, thread_, {file, line},
                  "overwrites what thread " + std::to_string(word.writer) + " wrote since the last barrier");
  }
  if (word.read_interval == machine_.interval_ && word.reader != thread_) {
    machine_.fail(FaultKind::race, thread_, {file, line}, "overwrites what another thread read since the last barrier");
  }
  word.bits = std::bit_cast<std::uint32_t>(value);
  word.set = true;
  word.writer = thread_;
  word.write_interval = machine_.interval_;
}

}  // namespace plumb::testing::simt

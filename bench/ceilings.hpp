// SPDX-License-Identifier: Apache-2.0
//
// ceilings.hpp: what this machine can do at most, measured beside the operators: bytes copied and read per second by
// streams through memory (stores pass by the caches), multiply-adds per second from registers.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "plumb/kernels/cpu_execution.hpp"

namespace plumb::bench {

// Zeroed memory on large pages.
class Lines {
 public:
  explicit Lines(std::size_t bytes);
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_;
};

class Ceilings {
 public:
  // The threads outlive this.
  explicit Ceilings(cpu::CpuThreads& threads);

  // Measures once more; the fastest ever seen counts. Call it between operators, so that both share their disturbances.
  void measure();

  double copy_bytes_per_second() const { return copied_bytes_ / copy_.total(); }
  double read_bytes_per_second() const { return read_bytes_ / read_.total(); }
  double flops_per_second() const { return flops_ / fma_.total(); }

 private:
  // The fastest time of each part, over all repetitions.
  class Parts {
   public:
    void add(std::size_t part, double seconds);
    double total() const;

   private:
    std::vector<double> fastest_;
  };

  cpu::CpuThreads& threads_;
  Lines from_;
  Lines to_;
  Parts copy_;
  Parts read_;
  Parts fma_;
  double copied_bytes_ = 0;
  double read_bytes_ = 0;
  double flops_ = 0;
};

// Gives each thread a processor of its own where there are enough: on a busy machine the system may leave two threads
// on one for seconds. The calling thread is free again in the end.
class Pinned {
 public:
  explicit Pinned(cpu::CpuThreads& threads);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  struct Before;
  std::unique_ptr<Before> before_;
};

// Seconds: of the processor in this thread when it works alone, so that being interrupted does not count; of a steady
// clock when it waits for others.
double now_seconds(const cpu::CpuThreads& threads);

}  // namespace plumb::bench

// SPDX-License-Identifier: Apache-2.0
// simt_memory.hpp: the shared memory of a simulated block. Every access is checked against all earlier ones.
//
// What one thread writes, another may read or overwrite only after a barrier of the block, or of the warp if both are
// in it. A copy started by copy() is in flight until its thread waits for its group: nobody may touch the words before;
// from then on they count as written by that thread at that moment, with what lies at the source by then. It is NOT a
// model of banks or of time. Units: words of 4 bytes, counted from the start of the block's memory.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace plumb::testing::simt {

enum class FaultKind {
  out_of_bounds,
  unset_read,
  race,
  unfinished_copy,
  divergent_barrier,
  divergent_warp,
  misaligned,
  bad_launch
};

class Fault : public std::runtime_error {
 public:
  Fault(FaultKind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  FaultKind kind() const { return kind_; }

 private:
  FaultKind kind_;
};

/// Where in a body something is done; a line stands for the statement.
struct Site {
  const char* file;
  int line;
};

[[noreturn]] void fail(FaultKind kind, std::int64_t block, int thread, Site site, const std::string& what);

class BlockMemory {
 public:
  /// Memory of a new block, nothing of it set.
  void start(std::int64_t block, int shared_bytes, int threads);
  /// Throws Fault if a thread leaves copies behind that it has not waited for.
  void finish() const;

  void block_barrier() { ++interval_; }
  void warp_barrier(int warp) { ++warp_interval_[static_cast<std::size_t>(warp)]; }

  /// The word that element `index` of a window of `count` words from `offset_bytes` on is. Throws if there is none.
  std::int64_t at(int thread, int offset_bytes, int index, int count, Site site) const;
  std::uint32_t read(int thread, std::int64_t at, Site site);
  void write(int thread, std::int64_t at, std::uint32_t bits, Site site);

  /// Starts a copy of so many words, or of zeros where `from` is null, into the thread's open group.
  void copy(int thread, std::int64_t at, const void* from, int words, Site site);
  /// Closes the open group of the thread.
  void commit(int thread);
  /// Waits until at most so many closed groups of the thread are in flight.
  void wait(int thread, int groups);

 private:
  static constexpr int kMany = -2;
  struct Word {
    std::uint32_t bits = 0;
    bool set = false;
    int copier = -1;
    int writer = -1;
    std::int64_t write_interval = -1;
    std::int64_t write_warp_interval = -1;
    int reader = -1;           // kMany: several
    int reading_warp = kMany;  // kMany: several
    std::int64_t read_interval = -1;
    std::int64_t read_warp_interval = -1;
  };
  struct Copy {
    std::int64_t at;
    const void* from;
    int words;
    std::int64_t group;
    Site site;
  };
  struct Copies {
    std::vector<Copy> in_flight;
    std::int64_t open_group = 0;
  };

  std::int64_t warp_interval(int thread) const;
  bool sees_write(int thread, const Word& word) const;
  void require_free(int thread, const Word& word, Site site, const char* doing) const;
  void put(int thread, Word& word, std::uint32_t bits);

  std::int64_t block_ = 0;
  int shared_bytes_ = 0;
  std::int64_t interval_ = 0;
  std::vector<std::int64_t> warp_interval_;
  std::vector<Word> words_;
  std::vector<Copies> copies_;
};

}  // namespace plumb::testing::simt

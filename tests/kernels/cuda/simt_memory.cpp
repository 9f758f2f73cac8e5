// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/simt_memory.hpp"

#include <cstring>

#include "cuda/execution.hpp"

namespace plumb::testing::simt {

void fail(FaultKind kind, std::int64_t block, int thread, Site site, const std::string& what) {
  throw Fault(kind, std::string(site.file) + ":" + std::to_string(site.line) + ": block " + std::to_string(block) +
                        ", thread " + std::to_string(thread) + " " + what);
}

void BlockMemory::start(std::int64_t block, int shared_bytes, int threads) {
  block_ = block;
  shared_bytes_ = shared_bytes;
  interval_ = 0;
  warp_interval_.assign(static_cast<std::size_t>(threads / cuda_detail::kWarp), 0);
  words_.assign(static_cast<std::size_t>(shared_bytes) / 4, Word{});
  copies_.assign(static_cast<std::size_t>(threads), Copies{});
}

void BlockMemory::finish() const {
  for (std::size_t k = 0; k < copies_.size(); ++k) {
    if (!copies_[k].in_flight.empty()) {
      fail(FaultKind::unfinished_copy, block_, static_cast<int>(k), copies_[k].in_flight.front().site,
           "starts a copy that it never waits for");
    }
  }
}

std::int64_t BlockMemory::at(int thread, int offset_bytes, int index, int count, Site site) const {
  const std::int64_t at = std::int64_t{offset_bytes} / 4 + index;
  if (index < 0 || index >= count || offset_bytes < 0 || offset_bytes % 4 != 0 ||
      at >= static_cast<std::int64_t>(words_.size())) {
    fail(FaultKind::out_of_bounds, block_, thread, site,
         "accesses element " + std::to_string(index) + " of " + std::to_string(count) + " at byte " +
             std::to_string(offset_bytes) + " of shared memory, of which the launch has " +
             std::to_string(shared_bytes_) + " bytes");
  }
  return at;
}

std::int64_t BlockMemory::warp_interval(int thread) const {
  return warp_interval_[static_cast<std::size_t>(thread / cuda_detail::kWarp)];
}

bool BlockMemory::sees_write(int thread, const Word& word) const {
  return word.writer == thread || word.write_interval < interval_ ||
         (word.writer / cuda_detail::kWarp == thread / cuda_detail::kWarp &&
          word.write_warp_interval < warp_interval(thread));
}

std::uint32_t BlockMemory::read(int thread, std::int64_t at, Site site) {
  Word& word = words_[static_cast<std::size_t>(at)];
  if (word.copier >= 0) {
    fail(FaultKind::unfinished_copy, block_, thread, site,
         "reads what thread " + std::to_string(word.copier) + " has not yet waited for");
  }
  if (!word.set) {
    fail(FaultKind::unset_read, block_, thread, site, "reads shared memory that nobody has written");
  }
  if (!sees_write(thread, word)) {
    fail(FaultKind::race, block_, thread, site,
         "reads what thread " + std::to_string(word.writer) + " wrote since the last barrier");
  }
  const int warp = thread / cuda_detail::kWarp;
  const bool first = word.read_interval != interval_;
  word.reader = first || word.reader == thread ? thread : kMany;
  word.reading_warp = first || word.reading_warp == warp ? warp : kMany;
  word.read_interval = interval_;
  word.read_warp_interval = warp_interval(thread);
  return word.bits;
}

// Neither a write of another thread, nor a read, nor a copy may be under way where a thread writes.
void BlockMemory::require_free(int thread, const Word& word, Site site, const char* doing) const {
  if (word.copier >= 0) {
    fail(FaultKind::race, block_, thread, site,
         std::string(doing) + " over a copy of thread " + std::to_string(word.copier) + " that is in flight");
  }
  if (word.set && !sees_write(thread, word)) {
    fail(FaultKind::race, block_, thread, site,
         std::string(doing) + " over what thread " + std::to_string(word.writer) + " wrote since the last barrier");
  }
  const bool read_before =
      word.read_interval < interval_ || word.reader == thread ||
      (word.reading_warp == thread / cuda_detail::kWarp && word.read_warp_interval < warp_interval(thread));
  if (!read_before) {
    fail(FaultKind::race, block_, thread, site,
         std::string(doing) + " over what another thread read since the last barrier");
  }
}

void BlockMemory::put(int thread, Word& word, std::uint32_t bits) {
  word.bits = bits;
  word.set = true;
  word.writer = thread;
  word.write_interval = interval_;
  word.write_warp_interval = warp_interval(thread);
}

void BlockMemory::write(int thread, std::int64_t at, std::uint32_t bits, Site site) {
  Word& word = words_[static_cast<std::size_t>(at)];
  require_free(thread, word, site, "writes");
  put(thread, word, bits);
}

void BlockMemory::copy(int thread, std::int64_t at, const void* from, int words, Site site) {
  for (int k = 0; k < words; ++k) {
    Word& word = words_[static_cast<std::size_t>(at + k)];
    require_free(thread, word, site, "copies");
    word.copier = thread;
  }
  Copies& own = copies_[static_cast<std::size_t>(thread)];
  own.in_flight.push_back({at, from, words, own.open_group, site});
}

void BlockMemory::commit(int thread) { ++copies_[static_cast<std::size_t>(thread)].open_group; }

void BlockMemory::wait(int thread, int groups) {
  Copies& own = copies_[static_cast<std::size_t>(thread)];
  std::erase_if(own.in_flight, [&](const Copy& copy) {
    if (copy.group >= own.open_group - groups) {
      return false;
    }
    for (int k = 0; k < copy.words; ++k) {
      std::uint32_t bits = 0;
      if (copy.from != nullptr) {
        std::memcpy(&bits, static_cast<const char*>(copy.from) + 4 * k, sizeof bits);
      }
      Word& word = words_[static_cast<std::size_t>(copy.at + k)];
      word.copier = -1;
      put(thread, word, bits);
    }
    return true;
  });
}

}  // namespace plumb::testing::simt

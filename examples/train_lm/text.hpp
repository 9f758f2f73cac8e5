// SPDX-License-Identifier: Apache-2.0
//
// text.hpp: a text file as bytes, and the training sequences drawn from it.
//
// One token is one byte. Sequence number k of a run starts at a place that is a pure function of (seed, k), so every
// rank draws the same batches without talking, and a run resumes by knowing how many sequences were drawn. It is NOT a
// tokenizer and never reshuffles. Threads: const access from any.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plumb/kernels/counter_rng.hpp"

namespace plumb::lm {

// One microbatch: ids and, for each, the id that follows it; sequences x sequence of them, row-major.
struct TokenBatch {
  std::vector<std::int64_t> inputs;
  std::vector<std::int64_t> targets;
};

class Text {
 public:
  // Reads a file. Throws InputError, one line, when it is missing, unreadable, empty, shorter than one sequence and the
  // byte that follows it, or binary (contains a zero byte).
  static Text load(const std::string& path, std::int64_t sequence);

  // The first licence text found where Debian keeps them, else `fallback`; throws InputError when nothing is there.
  static std::string default_path(const std::string& fallback);

  Text(std::string name, std::string bytes) : name_(std::move(name)), bytes_(std::move(bytes)) {}

  const std::string& name() const { return name_; }
  std::int64_t size_bytes() const { return static_cast<std::int64_t>(bytes_.size()); }
  // A number that differs for texts that differ, in all likelihood.
  std::uint64_t fingerprint() const { return CounterRng(0, bytes_).bits(0); }

  // Sequences number `first` .. first + sequences - 1. REQUIRES: size_bytes() > sequence.
  TokenBatch batch(std::uint64_t seed, std::uint64_t first, std::int64_t sequences, std::int64_t sequence) const;

 private:
  std::string name_;
  std::string bytes_;
};

}  // namespace plumb::lm

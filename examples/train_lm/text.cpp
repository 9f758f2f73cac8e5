// SPDX-License-Identifier: Apache-2.0
#include "train_lm/text.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb::lm {

Text Text::load(const std::string& path, std::int64_t sequence) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    throw InputError(fmt::format("text {}: no such file", path));
  }
  if (!std::filesystem::is_regular_file(path, code)) {
    throw InputError(fmt::format("text {}: not a regular file", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw InputError(fmt::format("text {}: {}", path, std::strerror(errno)));
  }
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) {
    throw InputError(fmt::format("text {}: reading failed", path));
  }
  if (bytes.empty()) {
    throw InputError(fmt::format("text {}: empty; at least {} bytes are needed (one sequence and the next byte)", path,
                                 sequence + 1));
  }
  if (const auto zero = bytes.find('\0'); zero != std::string::npos) {
    throw InputError(fmt::format("text {}: binary, not text (zero byte at offset {})", path, zero));
  }
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size <= sequence) {
    throw InputError(
        fmt::format("text {}: {} bytes are shorter than one sequence of {} and the next byte; nearest: seq {}", path,
                    size, sequence, size - 1));
  }
  return {path, std::move(bytes)};
}

std::string Text::default_path(const std::string& fallback) {
  const std::array<std::string, 5> candidates = {"/usr/share/common-licenses/GPL-3", "/usr/share/common-licenses/GPL-2",
                                                 "/usr/share/common-licenses/Apache-2.0",
                                                 "/usr/share/common-licenses/MPL-2.0", fallback};
  std::error_code code;
  for (const std::string& candidate : candidates) {
    if (std::filesystem::is_regular_file(candidate, code)) {
      return candidate;
    }
  }
  throw InputError(
      fmt::format("text: none given, and neither a licence text nor {} was found; use --text FILE", fallback));
}

TokenBatch Text::batch(std::uint64_t seed, std::uint64_t first, std::int64_t sequences, std::int64_t sequence) const {
  const CounterRng places(seed, "training sequences");
  const auto num_places = static_cast<std::uint64_t>(size_bytes() - sequence);
  TokenBatch batch;
  batch.inputs.reserve(static_cast<std::size_t>(sequences * sequence));
  batch.targets.reserve(batch.inputs.capacity());
  for (std::int64_t k = 0; k < sequences; ++k) {
    const std::uint64_t start = places.bits(first + static_cast<std::uint64_t>(k)) % num_places;
    for (std::uint64_t i = start; i < start + static_cast<std::uint64_t>(sequence); ++i) {
      batch.inputs.push_back(static_cast<unsigned char>(bytes_[i]));
      batch.targets.push_back(static_cast<unsigned char>(bytes_[i + 1]));
    }
  }
  return batch;
}

}  // namespace plumb::lm

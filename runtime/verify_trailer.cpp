// SPDX-License-Identifier: Apache-2.0
#include "verify_trailer.hpp"

#include <bit>
#include <cstring>

#include <fmt/format.h>

namespace plumb {

VerifyTrailer make_trailer(std::int64_t step, MessageId id, const Message& message) {
  return {
      step, id.value, message.transfer.value, message.microbatch.value, static_cast<std::int32_t>(message.direction),
      0};
}

std::uint64_t extend_checksum(std::uint64_t checksum, std::span<const std::byte> bytes) {
  constexpr std::uint64_t odd_multiplier = 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio
  const auto mix = [&](std::uint64_t word) { checksum = (std::rotl(checksum, 29) ^ word) * odd_multiplier; };
  std::size_t i = 0;
  for (; i + sizeof(std::uint64_t) <= bytes.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    mix(word);
  }
  std::uint64_t rest = 0;
  if (i < bytes.size()) std::memcpy(&rest, bytes.data() + i, bytes.size() - i);
  mix(rest);
  mix(bytes.size());
  return checksum;
}

std::string difference(const VerifyTrailer& expected, const VerifyTrailer& got) {
  const auto name = [](std::int32_t direction) { return direction == 0 ? "forward" : "backward"; };
  if (got.step != expected.step) return fmt::format("step {} instead of {}", got.step, expected.step);
  if (got.direction != expected.direction) {
    return fmt::format("a {} message instead of a {} one", name(got.direction), name(expected.direction));
  }
  if (got.microbatch != expected.microbatch) {
    return fmt::format("microbatch {} instead of {}", got.microbatch, expected.microbatch);
  }
  if (got.transfer != expected.transfer) {
    return fmt::format("transfer {} instead of {}", got.transfer, expected.transfer);
  }
  if (got.message != expected.message) return fmt::format("message {} instead of {}", got.message, expected.message);
  if (got.checksum != expected.checksum) {
    return fmt::format("payload checksum {:016x} instead of {:016x}", got.checksum, expected.checksum);
  }
  return "";
}

}  // namespace plumb

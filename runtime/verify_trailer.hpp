// SPDX-License-Identifier: Apache-2.0
//
// verify_trailer.hpp (private): the optional last segment of a message that says what the message is.
//
// It is a check, not a protocol: the receiver already knows from its program what must come, and only compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "plumb/cache/program.hpp"

namespace plumb {

struct VerifyTrailer {
  std::int64_t step = 0;
  std::int32_t message = 0;  // index in the common order
  std::int32_t transfer = 0;
  std::int32_t microbatch = 0;
  std::int32_t direction = 0;
  std::uint64_t checksum = 0;  // of the payload
  friend bool operator==(const VerifyTrailer&, const VerifyTrailer&) = default;
};

VerifyTrailer make_trailer(std::int64_t step, MessageId id, const Message& message);

// Continues a checksum over more bytes; the order of the bytes counts. Start with 0.
std::uint64_t extend_checksum(std::uint64_t checksum, std::span<const std::byte> bytes);

// What differs, in words: "microbatch 3 instead of 2"; empty if nothing does.
std::string difference(const VerifyTrailer& expected, const VerifyTrailer& got);

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// encode.hpp: a program's canonical bytes, its digest, its JSON, and the first difference between two ranks' programs.
//
// All ranks compute the same program; before the first byte moves they compare fingerprints, so that a wrong flag on
// one rank becomes one line naming the field and both values instead of a hang. The JSON is what `plumb plan --format
// json` prints and `plumb check` reads; it carries everything, so reading it back gives an equal program.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plumb/cache/program.hpp"

namespace plumb {

// Fixed little-endian layout, independent of the machine; equal programs have equal bytes.
std::vector<std::byte> canonical_bytes(const Program& program);

struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
};
std::string to_string(const Digest& digest);  // 32 hex digits
Digest digest(const Program& program);        // XXH3-128 of the canonical bytes

// Ordered (field, value) pairs from coarse to fine: layout, depth, policy, schedule, then digests of messages and of
// each rank's program. The last pair is the whole digest.
using Fingerprint = std::vector<std::pair<std::string, std::string>>;
Fingerprint fingerprint(const Program& program);

struct Difference {
  std::string field;
  std::string mine;
  std::string theirs;
};
// The first field in which two fingerprints differ.
std::optional<Difference> first_difference(const Fingerprint& mine, const Fingerprint& theirs);

std::string program_to_json(const Program& program);
// Throws InputError naming the JSON path of the first wrong, missing or out-of-range field.
Program program_from_json(std::string_view text);

}  // namespace plumb

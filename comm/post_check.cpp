// SPDX-License-Identifier: Apache-2.0
#include "post_check.hpp"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include <fmt/format.h>

namespace plumb::comm {
namespace {

template <class AnySegment>
std::size_t check(PeerId rank, std::int32_t size, PeerId peer, std::span<const AnySegment> segments) {
  if (peer.value < 0 || peer.value >= size) {
    throw std::invalid_argument(
        fmt::format("rank {}: no peer {} among {} ranks (legal: 0 to {})", rank.value, peer.value, size, size - 1));
  }
  if (peer == rank) throw std::invalid_argument(fmt::format("rank {}: a rank sends no message to itself", rank.value));
  if (segments.empty()) {
    throw std::invalid_argument(
        fmt::format("rank {}: a message with rank {} has no segment; post nothing instead", rank.value, peer.value));
  }
  std::size_t total_bytes = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].data == nullptr || segments[i].size_bytes == 0) {
      throw std::invalid_argument(fmt::format("rank {}: segment {} of {} of a message with rank {} is {}", rank.value,
                                              i, segments.size(), peer.value,
                                              segments[i].data == nullptr ? "a null pointer" : "empty"));
    }
    total_bytes += segments[i].size_bytes;
  }
  return total_bytes;
}

}  // namespace

std::size_t check_post(PeerId rank, std::int32_t size, PeerId peer, std::span<const ConstSegment> segments) {
  return check(rank, size, peer, segments);
}

std::size_t check_post(PeerId rank, std::int32_t size, PeerId peer, std::span<const Segment> segments) {
  return check(rank, size, peer, segments);
}

void IssuingGuard::die(PeerId rank) noexcept {
  std::fprintf(stderr, "plumb: rank %d: two threads are inside one Transport at once\n", static_cast<int>(rank.value));
  std::abort();
}

}  // namespace plumb::comm

// SPDX-License-Identifier: Apache-2.0
#include "train_lm/gather.hpp"

#include <cstddef>
#include <string_view>
#include <utility>

#include "train_lm/agreement.hpp"

namespace plumb::lm {

namespace {

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

}  // namespace

std::vector<std::string> gather(ControlPlane* control, std::string mine) {
  if (control == nullptr) {
    return {std::move(mine)};
  }
  const bool collects = control->rank() == PeerId{0};
  std::vector<std::string> whole(collects ? static_cast<std::size_t>(control->size()) : 0);
  std::string_view rest = mine;
  for (bool more = true; more;) {
    const std::string_view piece = rest.substr(0, kPieceBytes);
    rest.remove_prefix(piece.size());
    const std::vector<std::string> pieces = control->exchange(std::string(piece), kControlLimit);
    more = false;
    for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
      if (collects) {
        whole[rank] += pieces[rank];
      }
      more = more || pieces[rank].size() == kPieceBytes;
    }
  }
  return whole;
}

}  // namespace plumb::lm

// SPDX-License-Identifier: Apache-2.0
#include "svg_axis.hpp"

#include <algorithm>
#include <cmath>

namespace plumb {

namespace {
constexpr double hair = 1e-6;  // rounding of pixels
}

Axis::Axis(SimTime step, std::vector<AxisBreak> breaks, double pixels_per_us, double band_width)
    : breaks_(std::move(breaks)), pixels_per_us_(pixels_per_us), band_width_(band_width) {
  double at = 0;
  SimTime from{0};
  const auto show = [&](SimTime to) {
    pieces_.push_back({from, to, at});
    at += to_us(to - from) * pixels_per_us_;
  };
  for (const AxisBreak& gap : breaks_) {
    show(gap.from);
    const double inside = at - std::floor((at + hair) / band_width_) * band_width_;
    if (inside + break_width > band_width_ + hair) at += band_width_ - inside;
    const int band = static_cast<int>(std::floor((at + hair) / band_width_));
    break_spans_.push_back({band, std::max(0.0, at - band * band_width_), break_width});
    at += break_width;
    from = gap.to;
  }
  show(step);
  num_bands_ = std::max(1, static_cast<int>(std::ceil((at - hair) / band_width_)));
}

std::vector<AxisSpan> Axis::spans(SimTime from, SimTime to) const {
  std::vector<AxisSpan> spans;
  auto piece = std::partition_point(pieces_.begin(), pieces_.end(), [&](const AxisPiece& p) { return p.to <= from; });
  for (; piece != pieces_.end() && piece->from < to; ++piece) {
    double begin = piece->at + to_us(std::max(from, piece->from) - piece->from) * pixels_per_us_;
    const double end = piece->at + to_us(std::min(to, piece->to) - piece->from) * pixels_per_us_;
    while (begin < end) {
      const int band = std::min(static_cast<int>(std::floor((begin + hair) / band_width_)), num_bands_ - 1);
      const double edge = (band + 1) * band_width_;
      const double stop = band + 1 < num_bands_ ? std::min(end, edge) : end;
      if (stop - begin > hair) spans.push_back({band, begin - band * band_width_, stop - begin});
      if (stop <= begin) break;
      begin = stop;
    }
  }
  return spans;
}

std::optional<AxisSpan> Axis::locate(SimTime at) const {
  const auto piece =
      std::find_if(pieces_.begin(), pieces_.end(), [&](const AxisPiece& p) { return p.from <= at && at <= p.to; });
  if (piece == pieces_.end()) return std::nullopt;
  const double x = piece->at + to_us(at - piece->from) * pixels_per_us_;
  const int band = std::min(static_cast<int>(std::floor((x + hair) / band_width_)), num_bands_ - 1);
  return AxisSpan{band, std::max(0.0, x - band * band_width_), 0};
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// svg_axis.hpp (private): where an instant of a step lies on paper.
//
// The step is one long line of pixels, cut by breaks where time is left out, and wrapped into bands of equal width.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "plumb/simulator/sim_time.hpp"

namespace plumb {

struct AxisBreak {
  SimTime from{0};
  SimTime to{0};
  std::array<std::string, 2> label;  // two short lines
};

// A stretch of time shown without a break, from `at` pixels on along the line.
struct AxisPiece {
  SimTime from{0};
  SimTime to{0};
  double at = 0;
};

// A part of a piece that lies within one band.
struct AxisSpan {
  int band = 0;
  double x = 0;
  double width = 0;
};

class Axis {
 public:
  static constexpr double break_width = 98;

  // `breaks` ascending and disjoint. One break never lies on two bands.
  Axis(SimTime step, std::vector<AxisBreak> breaks, double pixels_per_us, double band_width);

  const std::vector<AxisBreak>& breaks() const { return breaks_; }
  AxisSpan break_span(std::size_t index) const { return break_spans_[index]; }
  int num_bands() const { return num_bands_; }
  double band_width() const { return band_width_; }
  double pixels_per_us() const { return pixels_per_us_; }

  // The parts of [from, to] that are shown, in order; nothing for what is left out.
  std::vector<AxisSpan> spans(SimTime from, SimTime to) const;
  // Where a shown instant is; at the seam of two bands the later one, unless the line ends there.
  std::optional<AxisSpan> locate(SimTime at) const;
  const std::vector<AxisPiece>& pieces() const { return pieces_; }

 private:
  std::vector<AxisBreak> breaks_;
  std::vector<AxisPiece> pieces_;
  std::vector<AxisSpan> break_spans_;
  double pixels_per_us_;
  double band_width_;
  int num_bands_ = 1;
};

}  // namespace plumb

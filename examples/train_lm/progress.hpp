// SPDX-License-Identifier: Apache-2.0
//
// progress.hpp: what a person sees while training: one moving line on a terminal, else a plain line now and then.
//
// Everything goes to stderr, so stdout stays for results. No colour is used. Threads: one.
#pragma once

#include "train_lm/trainer.hpp"

namespace plumb::lm {

class Progress final : public StepListener {
 public:
  // `terminal`: whether stderr is one.
  explicit Progress(bool terminal) : terminal_(terminal) {}
  // Ends a line that the bar left open.
  ~Progress() override;
  void step_done(const StepEvent& event) override;

 private:
  bool worth_a_line(const StepEvent& event) const;

  bool terminal_;
  bool line_open_ = false;
  double seconds_ = 0;  // of all steps so far
};

}  // namespace plumb::lm

// SPDX-License-Identifier: Apache-2.0
//
// progress.hpp: what a person sees while training: one moving line on a terminal, else a plain line now and then.
//
// Everything goes to stderr, so stdout stays for results. No colour is used. With a log file each step is appended as
// one JSON line: {"step":..,"loss":..,"policy":"..","step_us":..,"tokens_per_s":..}. Threads: one.
#pragma once

#include <fstream>
#include <string>

#include "train_lm/trainer.hpp"

namespace plumb::lm {

class Progress final : public StepListener {
 public:
  // `terminal`: whether stderr is one. An empty log name means no log; throws InputError when it cannot be opened.
  Progress(bool terminal, const std::string& log_file);
  // Ends a line that the bar left open.
  ~Progress() override;
  void step_done(const StepEvent& event) override;

 private:
  void log(const StepEvent& event, double tokens_per_s);
  bool worth_a_line(const StepEvent& event) const;

  bool terminal_;
  std::ofstream log_;
  std::string log_name_;
  bool line_open_ = false;
  double seconds_ = 0;  // of all steps so far
};

}  // namespace plumb::lm

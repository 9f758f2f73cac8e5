// SPDX-License-Identifier: Apache-2.0
//
// stats_file.hpp: the file of --stats: one JSON line per recorded step and sublayer, and at the end one picture beside
// it: how much each sublayer reads of each block, as a heat map.
//
// The fields are described in examples/README.md. Written by the rank that speaks, between steps. Threads: one.
#pragma once

#include <fstream>
#include <string>

#include "train_lm/trainer.hpp"

namespace plumb::lm {

// "run.svg" beside "run.jsonl"; other names get ".svg" behind them.
std::string picture_beside(const std::string& stats_file);

class StatsFile {
 public:
  // Starts the file anew. Throws InputError for the name of a picture, cli::EnvironmentError when it cannot be opened.
  explicit StatsFile(const std::string& file);

  // Nothing for a step without diagnostics; the last step of a run also draws. Throws cli::EnvironmentError when it
  // cannot be written.
  void write(const StepEvent& event);

 private:
  void draw(const StepEvent& event) const;

  std::string file_;
  std::ofstream out_;
};

}  // namespace plumb::lm

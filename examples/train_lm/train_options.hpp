// SPDX-License-Identifier: Apache-2.0
//
// train_options.hpp: what a user of plumb-train typed, one field per flag, nothing resolved yet.
//
// The flags shared with the other programs are the command line's own struct; train_plan.hpp gives them meaning.
// parse_train_options.cpp fills it and is the only file here that knows CLI11.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "options.hpp"

namespace plumb::lm {

enum class Output { run, done };

struct TrainOptions {
  cli::Options shared;
  std::optional<std::int64_t> tokens;  // of one microbatch
  std::optional<std::int64_t> sequence;
  std::optional<std::int64_t> heads;
  std::optional<std::string> dtype;
  std::optional<std::uint64_t> seed;
  std::optional<double> learning_rate;
  std::optional<std::string> text;
  std::optional<std::string> ranks;
  std::string recompute = "none";
  std::string device = "cpu";
  std::string save;
  std::string load;
  std::string log;
  std::string profile_out;
  std::string stats;
  std::optional<std::int64_t> stats_every;
  std::int64_t steps = 50;
  int threads = 1;  // of each rank
  bool check = false;
};

// Throws cli::UsageError. `done`: help or version was printed.
Output parse_train_options(int argc, char** argv, TrainOptions& options);

}  // namespace plumb::lm

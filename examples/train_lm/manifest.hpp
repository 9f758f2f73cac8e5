// SPDX-License-Identifier: Apache-2.0
//
// manifest.hpp: a checkpoint's manifest.json: model, depth configuration, position of the run, and the list of its
// parts.
//
// The manifest is renamed into place after all parts are on disk, so a reader sees the old checkpoint or the new one
// and never a mixture. It holds no tensors (checkpoint.hpp does) and knows no layout. Everything that is wrong with a
// folder throws InputError, one line. Threads: none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train_lm/lm_config.hpp"

namespace plumb::lm {

struct CheckpointInfo {
  LmConfig model;
  std::int64_t num_steps = 0;         // optimizer steps taken
  std::uint64_t sequences_drawn = 0;  // data position: the next training sequence has this number
  double learning_rate = 0;
};

// One rank's tensors in a file of their own.
struct PartFile {
  std::string file;  // within the folder
  std::uint64_t size_bytes = 0;
  std::uint64_t checksum = 0;
};

inline constexpr std::string_view kPartSuffix = ".part";

// Makes the checkpoint of these parts the folder's current one, atomically, and removes parts that no longer belong.
void commit_checkpoint(const std::string& folder, const CheckpointInfo& info, std::span<const PartFile> parts);

// A manifest without depth fields means a standard residual.
CheckpointInfo read_checkpoint(const std::string& folder);

// The parts of the folder's current checkpoint.
std::vector<PartFile> read_parts(const std::string& folder);

}  // namespace plumb::lm

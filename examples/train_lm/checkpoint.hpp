// SPDX-License-Identifier: Apache-2.0
//
// checkpoint.hpp: a training run on disk, independent of how it was cut.
//
// A checkpoint is a folder: manifest.json (model, depth configuration, position, list of parts) and one part per rank
// that wrote it (tensors by parameter name, optimizer moments included). Parts are named after their content and come
// first; the manifest is renamed into place last, so a reader sees the old checkpoint or the new one and never a
// mixture. Any layout can load it: names, not ranks, are the keys. docs: README.md beside this file. Everything that is
// wrong with a folder throws InputError, one line. Threads: none; ranks call write_part side by side.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "train_lm/lm_config.hpp"

namespace plumb::lm {

struct CheckpointInfo {
  LmConfig model;
  std::int64_t num_steps = 0;         // optimizer steps taken
  std::uint64_t sequences_drawn = 0;  // data position: the next training sequence has this number
  double learning_rate = 0;
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  // contiguous, fp32 or fp64
};

struct PartFile {
  std::string file;  // within the folder
  std::uint64_t size_bytes = 0;
  std::uint64_t checksum = 0;
};

// Writes one rank's tensors, synced to disk; makes the folder if need be. Not yet part of any checkpoint.
PartFile write_part(const std::string& folder, std::span<const NamedTensor> tensors);

// Makes the checkpoint of these parts the folder's current one, atomically, and removes parts that no longer belong.
void commit_checkpoint(const std::string& folder, const CheckpointInfo& info, std::span<const PartFile> parts);

// A manifest without depth fields means a standard residual.
CheckpointInfo read_checkpoint(const std::string& folder);

// Overwrites every tensor with what is stored under its name. All parts are read and checked (size, checksum, names,
// shapes, types) before the first tensor changes. Names that are stored but not asked for are left out.
void load_tensors(const std::string& folder, std::span<NamedTensor> tensors);

// FNV-1a, 64 bits; finds damage, proves nothing.
std::uint64_t checksum(std::span<const char> bytes, std::uint64_t start = 0xcbf29ce484222325ULL);

}  // namespace plumb::lm

// SPDX-License-Identifier: Apache-2.0
//
// checkpoint.hpp: tensors on disk by name, independent of how the model was cut.
//
// Each rank that saves writes one part with the tensors it owns; the manifest (manifest.hpp) then makes the parts a
// checkpoint. Any layout can load it: names, not ranks, are the keys. The format is in ../README.md. Everything that is
// wrong with a file throws InputError, one line. Threads: none; ranks call write_part side by side.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "train_lm/manifest.hpp"

namespace plumb::lm {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  // contiguous, fp32 or fp64
};

// Writes one rank's tensors, synced to disk; makes the folder if need be. Not yet part of any checkpoint.
PartFile write_part(const std::string& folder, std::span<const NamedTensor> tensors);

// Overwrites every tensor with what is stored under its name. All parts are read and checked (size, checksum, names,
// shapes, types) before the first tensor changes. Names that are stored but not asked for are left out.
void load_tensors(const std::string& folder, std::span<NamedTensor> tensors);

// FNV-1a, 64 bits; finds damage, proves nothing.
std::uint64_t checksum(std::span<const char> bytes, std::uint64_t start = 0xcbf29ce484222325ULL);

}  // namespace plumb::lm

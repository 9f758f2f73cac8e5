// SPDX-License-Identifier: Apache-2.0
//
// model_tables.hpp (private): per sublayer, what chunks are summed up from when many cuts are tried.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <tuple>
#include <vector>

#include "plumb/sizing/candidates.hpp"
#include "plumb/sizing/roofline.hpp"

namespace plumb {

struct ModelTables {
  std::vector<SublayerCosts> costs;
  std::vector<HeldParameters> parameters;
  std::vector<double> workspaces;
  double expert_bytes = 0;  // that all sublayers of a microbatch send over ep
};

ModelTables model_tables(const SizeRequest& request, const Candidate& candidate);

// Made once per degrees, microbatch and recomputation. Safe from many threads.
class TableCache {
 public:
  const ModelTables& of(const SizeRequest& request, const Candidate& candidate);

 private:
  std::mutex mutex_;
  std::map<std::tuple<int, int, int, Recompute>, ModelTables> tables_;
};

std::vector<double> chunk_activations(std::span<const SublayerCosts> sublayers, std::span<const int> cuts);

// As cuts_of(), with costs at hand.
std::vector<int> cuts_of(const SizeRequest& request, const Candidate& candidate, std::span<const SublayerCosts> costs);

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
//
// model_host.hpp (tests): a small real model (norm, matrix, tanh per sublayer) as Stages, in double precision.
//
// The entry hands out a learnt table times a mask per microbatch, the exit's loss is a weighted sum of the head's input
// and of its squares, so that everything has a gradient. Sublayers are the kernels' test layers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/support/rows.hpp"
#include "kernels/support/test_sublayer.hpp"
#include "plumb/cache/program.hpp"
#include "plumb/runtime/executor.hpp"
#include "plumb/runtime/machine_stage.hpp"
#include "plumb/runtime/standard_stage.hpp"

namespace plumb::test {

using Row = testing::Rows<double>;

struct ModelOptions {
  std::int64_t tokens = 3;
  std::int64_t width = 5;
  bool recompute = false;
  bool head_aggregate = true;
  double query_stddev = 0.7;  // 0: zero queries
  double eps = 1e-6;
};

class ModelHost {
 public:
  ModelHost(const DepthMap& depth, const ModelOptions& options);
  ~ModelHost();

  StageTable stages() const;
  SlotShape shape() const { return {options_.tokens, options_.width, Storage::fp64}; }

  // By name: depth parameters, "weight.<sublayer>", "embedding", "slope" (the loss's). Sums since the last clear.
  std::map<std::string, Row> gradients() const;
  // Those of one chunk only.
  std::map<std::string, Row> gradients(ChunkId chunk) const;
  // [microbatch], as the exit saw them.
  const std::map<Microbatch, double>& losses() const;
  void clear();
  int num_forwards(int sublayer) const { return sublayers_[static_cast<std::size_t>(sublayer)]->num_forwards; }
  void freeze(int sublayer) { sublayers_[static_cast<std::size_t>(sublayer)]->frozen = true; }
  // Activations kept by sublayers; 0 between steps.
  std::size_t num_kept() const;

 private:
  class Entry;
  class Exit;

  DepthMap depth_;
  ModelOptions options_;
  std::unique_ptr<Entry> entry_;
  std::unique_ptr<Exit> exit_;
  std::vector<std::unique_ptr<testing::TestSublayer<double>>> sublayers_;
  std::vector<std::unique_ptr<DepthParameters>> parameters_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

// The same model in one process: one chunk, no Program, no slots.
struct OneProcess {
  std::map<std::string, Row> gradients;
  std::map<Microbatch, double> losses;
};
OneProcess run_in_one_process(const DepthMap& depth, const ModelOptions& options, int microbatches, bool backward);

// max |a - b| / max |b| of one parameter, the largest over all; infinite if the names differ.
double largest_difference(const std::map<std::string, Row>& a, const std::map<std::string, Row>& b);

}  // namespace plumb::test

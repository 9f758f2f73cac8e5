// SPDX-License-Identifier: Apache-2.0
//
// kernels_bench.hpp: how close the operators of depth attention come to what memory and arithmetic allow.
//
// Tokens are run in short chunks and the fastest repetition of each chunk counts, so that other work on the machine
// disturbs little; the ceilings are measured the same way between operators.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumb/kernels/storage.hpp"

namespace plumb::bench {

struct KernelsRequest {
  std::int64_t tokens = 4096;
  std::int64_t width = 2048;
  int num_sources = 8;
  int num_queries = 16;
  std::vector<Storage> formats = {Storage::fp32, Storage::bf16};
  std::vector<int> threads = {1};  // with {1, n} results for n know what n threads gained
  int repetitions = 9;
  std::string only;  // an operator, or empty: all
};

// Figures of one operator; bytes and flops of the whole problem, by the operator's own counts (docs/kernels.md).
struct KernelResult {
  std::string name;
  Storage storage = Storage::fp32;
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  int num_sources = 0;
  int num_queries = 0;
  int threads = 0;
  double time_us = 0;
  double bytes = 0;
  double flops = 0;
  double stream_bytes_per_second = 0;  // copy, or read for operators that write little
  double flops_per_second = 0;         // ceiling

  // Beside one thread in the same run: how much faster the operator is, and how much the bound allows. 0: not measured.
  double gain = 0;
  double bound_gain = 0;

  double bound_us() const;
  double share_of_stream() const { return bytes / stream_bytes_per_second / (time_us * 1e-6); }
  // Of the slower of the two ceilings.
  double share_of_roofline() const;
};

// Names of the operators, in the order of the results.
const std::vector<std::string>& kernel_names();

// Throws std::bad_alloc where the tensors do not fit.
std::vector<KernelResult> measure_kernels(const KernelsRequest& request);

// plumb bench kernels with the arguments behind it: prints a table or JSON, returns the exit code.
int run_kernels_bench(const std::vector<std::string>& arguments);

}  // namespace plumb::bench

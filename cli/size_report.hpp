// SPDX-License-Identifier: Apache-2.0
//
// size_report.hpp (private): what `plumb size` found, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options.hpp"
#include "plumb/sizing/search.hpp"
#include "size_missed.hpp"

namespace plumb::cli {

// Nothing fits: what the smallest needs, and one that would.
struct Misfit {
  Candidate smallest;
  MemoryNeed need;
  struct Other {
    int gpus = 0;
    std::int64_t global_batch = 0;
    Candidate candidate;
    double peak_bytes = 0;
  };
  std::optional<Other> fits;
};

// Searches with the request's settled choices opened, then with more devices, at most 64 times as many.
Misfit misfit_of(const SizeRequest& request, const Candidate& smallest);
// One line: which rank, what it holds, by how much that is too large, what would fit.
std::string misfit_text(const SizeRequest& request, const Misfit& misfit);

// `missed`: what would be faster than the best if it fitted.
std::string size_text(const Options& options, const SizeRequest& request, const SearchResult& result,
                      const std::vector<Missed>& missed);
std::string size_json(const Options& options, const SizeRequest& request, const SearchResult& result,
                      const std::optional<Misfit>& misfit, const std::vector<Missed>& missed);

// "pp 16 x vp 2, tp 8, ep 64, dp 8, 128 x 1 sequences, v-half, cached, full recomputation, optimizer sharded".
std::string words_of(const Candidate& candidate);

// In figures, by what `other` is slower than `one`.
std::string comparison(const Evaluated& one, const Evaluated& other);

}  // namespace plumb::cli

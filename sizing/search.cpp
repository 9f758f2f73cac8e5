// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/search.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "bounds.hpp"
#include "standing.hpp"

namespace plumb {
namespace {

// Large enough to keep many cores busy, small enough that bounds learnt in one wave save work in the next.
constexpr std::size_t wave_size = 64;

struct Waiting {
  std::uint32_t family = 0;
  std::uint32_t member = 0;
  std::size_t order = 0;
  LowerBounds bounds;
};

std::size_t threads_of(const SearchOptions& options) {
  const int wanted =
      options.num_threads > 0 ? options.num_threads : static_cast<int>(std::thread::hardware_concurrency());
  return static_cast<std::size_t>(std::max(1, wanted));
}

// Simulates what is not known. Empty where it was stopped before.
std::vector<std::optional<Outcome>> evaluate_all(const SizeRequest& request, const SearchOptions& options,
                                                 std::span<const Candidate> candidates,
                                                 std::vector<std::optional<Outcome>> outcomes) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex failing;
  const auto work = [&] {
    for (std::size_t i = next++; i < candidates.size(); i = next++) {
      if (outcomes[i]) continue;
      if (options.stop && options.stop()) return;
      try {
        outcomes[i] = evaluate(request, candidates[i]);
      } catch (...) {
        const std::lock_guard lock(failing);
        if (!failure) failure = std::current_exception();
        return;
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t < std::min(threads_of(options), candidates.size()); ++t)
    threads.emplace_back(work);
  work();
  for (std::thread& thread : threads)
    thread.join();
  if (failure) std::rethrow_exception(failure);
  return outcomes;
}

class Search {
 public:
  Search(const SizeRequest& request, const SearchOptions& options)
      : request_(request), options_(options), families_(candidate_families(request)), standing_(options.num_best) {}

  SearchResult run() {
    bound_all();
    std::size_t at = 0;
    while (at < waiting_.size() && result_.is_complete) {
      std::vector<Evaluated> wave;
      for (; at < waiting_.size() && wave.size() < wave_size; ++at) {
        const Candidate candidate = families_[waiting_[at].family].at(waiting_[at].member);
        if (options_.prune && !standing_.could_matter(candidate, waiting_[at].bounds, waiting_[at].order)) {
          ++result_.num_dropped;
          continue;
        }
        wave.push_back({candidate, {}, waiting_[at].order});
      }
      evaluate_wave(std::move(wave));
      if (options_.progress) {
        options_.progress({result_.num_evaluated, waiting_.size() - at, standing_.best_step_us()});
      }
    }
    standing_.write(result_);
    return std::move(result_);
  }

 private:
  void bound_all() {
    Bounds bounds(request_);
    for (std::size_t f = 0; f < families_.size(); ++f) {
      if (options_.stop && options_.stop()) {
        result_.is_complete = false;
        return;
      }
      const CandidateFamily& family = families_[f];
      const std::size_t first = result_.num_candidates;
      result_.num_candidates += family.size();
      if (bounds.least_memory(family) > request_.memory_bytes) {
        result_.num_too_large += family.size();
        continue;
      }
      const std::vector<LowerBounds> all = bounds.of(family);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].peak_bytes > request_.memory_bytes) {
          ++result_.num_too_large;
        } else {
          waiting_.push_back({static_cast<std::uint32_t>(f), static_cast<std::uint32_t>(i), first + i, all[i]});
        }
      }
    }
    if (waiting_.empty()) result_.smallest = smallest_candidates(request_, 1).front();
    std::sort(waiting_.begin(), waiting_.end(), [](const Waiting& a, const Waiting& b) {
      return std::pair(a.bounds.step_us, a.order) < std::pair(b.bounds.step_us, b.order);
    });
  }

  void evaluate_wave(std::vector<Evaluated> wave) {
    std::vector<Candidate> candidates;
    std::vector<std::optional<Outcome>> known;
    for (const Evaluated& one : wave) {
      candidates.push_back(one.candidate);
      known.push_back(options_.recall ? options_.recall(one.candidate) : std::nullopt);
    }
    const std::vector<std::optional<Outcome>> outcomes = evaluate_all(request_, options_, candidates, known);
    std::vector<Evaluated> fresh;
    for (std::size_t i = 0; i < wave.size(); ++i) {
      if (!outcomes[i]) {
        result_.is_complete = false;
        continue;
      }
      wave[i].outcome = *outcomes[i];
      ++result_.num_evaluated;
      standing_.add(wave[i]);
      if (!known[i]) fresh.push_back(wave[i]);
    }
    if (options_.record && !fresh.empty()) options_.record(fresh);
  }

  const SizeRequest& request_;
  const SearchOptions& options_;
  std::vector<CandidateFamily> families_;
  std::vector<Waiting> waiting_;
  Standing standing_;
  SearchResult result_;
};

}  // namespace

std::vector<Candidate> smallest_candidates(const SizeRequest& request, std::size_t count) {
  const std::vector<CandidateFamily> families = candidate_families(request);
  Bounds bounds(request);
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t f = 0; f < families.size(); ++f)
    order.emplace_back(bounds.least_memory(families[f]), f);
  std::sort(order.begin(), order.end());
  std::map<std::pair<double, std::size_t>, Candidate> smallest;  // by bound, then the order in which they were seen
  std::size_t seen = 0;
  for (const auto& [least, f] : order) {
    if (smallest.size() >= count && least > smallest.rbegin()->first.first) break;
    const std::vector<LowerBounds> all = bounds.of(families[f]);
    for (std::size_t i = 0; i < all.size(); ++i) {
      smallest.emplace(std::pair(all[i].peak_bytes, seen++), families[f].at(i));
      if (smallest.size() > count) smallest.erase(std::prev(smallest.end()));
    }
  }
  std::vector<Candidate> candidates;
  for (const auto& [bound, candidate] : smallest)
    candidates.push_back(candidate);
  return candidates;
}

SearchResult search(const SizeRequest& request, const SearchOptions& options) { return Search(request, options).run(); }

}  // namespace plumb

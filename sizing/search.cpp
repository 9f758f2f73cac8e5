// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/search.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <queue>
#include <thread>
#include <tuple>
#include <utility>

#include "bounds.hpp"
#include "standing.hpp"

namespace plumb {
namespace {

// Large enough to keep many cores busy, small enough that what one wave shows saves work in the next.
constexpr std::size_t wave_size = 64;
constexpr std::size_t most_put_off = 256;  // by what a wave is expected to show
constexpr std::size_t families_at_once = 16;

std::size_t threads_of(const SearchOptions& options) {
  const int wanted =
      options.num_threads > 0 ? options.num_threads : static_cast<int>(std::thread::hardware_concurrency());
  return static_cast<std::size_t>(std::max(1, wanted));
}

// work(i) for all i < count on all threads. False if it was stopped before.
template <class Work>
bool in_parallel(const SearchOptions& options, std::size_t count, Work&& work) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> whole{true};
  std::exception_ptr failure;
  std::mutex failing;
  const auto go = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      if (options.stop && options.stop()) {
        whole = false;
        return;
      }
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(failing);
        if (!failure) failure = std::current_exception();
        return;
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t < std::min(threads_of(options), count); ++t)
    threads.emplace_back(go);
  go();
  for (std::thread& thread : threads)
    thread.join();
  if (failure) std::rethrow_exception(failure);
  return whole;
}

class Search {
 public:
  Search(const SizeRequest& request, const SearchOptions& options)
      : request_(request),
        options_(options),
        families_(candidate_families(request)),
        bounds_(request),
        standing_(options.num_best) {}

  SearchResult run() {
    bound_all();
    while (result_.is_complete && (!far_.empty() || !near_.empty())) {
      if (near_.empty() || (!far_.empty() && far_.back().least_us < near_.top().bounds.step_us)) {
        look_closer();
      } else {
        simulate_wave();
      }
      if (options_.progress)
        options_.progress({result_.num_evaluated, num_waiting_ - num_left_, num_left_, standing_.best_step_us()});
    }
    if (result_.is_complete && result_.num_too_large == result_.num_candidates) {
      result_.smallest = smallest_candidates(request_, 1).front();
    }
    standing_.write(result_);
    return std::move(result_);
  }

 private:
  // Members of a family of which only the first look is known.
  struct Far {
    std::size_t family = 0;
    double least_us = 0;
    std::vector<Bounds::Bounded> members{};
    bool operator<(const Far& other) const {  // the last is the most promising
      return std::pair(least_us, family) > std::pair(other.least_us, other.family);
    }
  };
  struct Near {
    std::size_t family = 0;
    std::size_t member = 0;
    std::size_t order = 0;
    LowerBounds bounds;
    bool operator<(const Near& other) const {
      return std::pair(bounds.step_us, order) > std::pair(other.bounds.step_us, other.order);
    }
  };
  // All that have one simulation in common.
  struct Simulation {
    Candidate candidate;
    std::vector<Sharding> shardings{};
    std::vector<Outcome> outcomes{};  // of these; empty until simulated
  };

  void bound_all() {
    for (std::size_t f = 0; f < families_.size(); ++f) {
      if (options_.stop && options_.stop()) {
        result_.is_complete = false;
        return;
      }
      const CandidateFamily& family = families_[f];
      first_of_.push_back(result_.num_candidates);
      result_.num_candidates += family.size();
      if (bounds_.least_memory(family) > request_.memory_bytes) {
        result_.num_too_large += family.size();
        continue;
      }
      const std::vector<LowerBounds> all = bounds_.of(family);
      Far far{.family = f};
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].peak_bytes > request_.memory_bytes) {
          ++result_.num_too_large;
          continue;
        }
        far.members.push_back({i, all[i]});
        far.least_us = far.members.size() == 1 ? all[i].step_us : std::min(far.least_us, all[i].step_us);
      }
      num_left_ += far.members.size();
      if (!far.members.empty()) far_.push_back(std::move(far));
    }
    num_waiting_ = num_left_;
    std::sort(far_.begin(), far_.end());
  }

  bool could_matter(std::size_t family, std::size_t member, const LowerBounds& bounds) const {
    return !options_.prune || standing_.could_matter(families_[family].at(member), bounds, first_of_[family] + member);
  }

  bool could_matter(const Standing& standing, const Near& near) const {
    return standing.could_matter(families_[near.family].at(near.member), near.bounds, near.order);
  }

  // What a simulation is likely to show, to choose what else is worth one at the same time.
  Evaluated expectation(const Near& near) const {
    constexpr double more = 1.002;
    return {families_[near.family].at(near.member),
            {.fits = true,
             .pipeline_us = near.bounds.step_us * more,
             .peak_bytes = near.bounds.peak_bytes * more,
             .network_bytes = near.bounds.network_bytes},
            near.order};
  }

  void drop(std::size_t count) {
    result_.num_dropped += count;
    num_left_ -= count;
  }

  // Takes the most promising families.
  void look_closer() {
    std::vector<Far> some;
    for (; some.size() < families_at_once && !far_.empty(); far_.pop_back())
      some.push_back(std::move(far_.back()));
    std::vector<std::size_t> num_dropped(some.size());
    result_.is_complete = in_parallel(options_, some.size(), [&](std::size_t i) {
      num_dropped[i] = std::erase_if(some[i].members, [&](const Bounds::Bounded& one) {
        return !could_matter(some[i].family, one.member, one.bounds);
      });
      bounds_.look_closer(families_[some[i].family], some[i].members);
    });
    if (!result_.is_complete) return;
    for (std::size_t i = 0; i < some.size(); ++i) {
      drop(num_dropped[i]);
      for (const Bounds::Bounded& one : some[i].members) {
        if (one.bounds.peak_bytes > request_.memory_bytes) {
          ++result_.num_too_large;
          --num_left_;
        } else if (could_matter(some[i].family, one.member, one.bounds)) {
          near_.push({some[i].family, one.member, first_of_[some[i].family] + one.member, one.bounds});
        } else {
          drop(1);
        }
      }
    }
  }

  // What is known from before counts as well, so that waves are the same without it.
  void simulate_wave() {
    std::vector<Evaluated> wave;
    std::vector<Simulation*> of;  // null: known from before
    std::vector<Simulation*> to_do;
    Standing expected = standing_;
    std::vector<Near> put_off;
    for (std::size_t num_new = 0; !near_.empty() && num_new < wave_size && put_off.size() < most_put_off;) {
      const Near near = near_.top();
      near_.pop();
      if (!could_matter(near.family, near.member, near.bounds)) {
        drop(1);
        continue;
      }
      if (options_.prune && !could_matter(expected, near)) {
        put_off.push_back(near);
        continue;
      }
      expected.add(expectation(near));
      wave.push_back({families_[near.family].at(near.member), {}, near.order});
      const auto [found, is_new] =
          simulations_.try_emplace({near.family, wave.back().candidate.cuts, wave.back().candidate.schedule,
                                    wave.back().candidate.group, wave.back().candidate.policy},
                                   Simulation{wave.back().candidate, families_[near.family].shardings});
      if (is_new) ++num_new;
      if (const std::optional<Outcome> known = recalled(wave.back().candidate)) {
        wave.back().outcome = *known;
        of.push_back(nullptr);
        continue;
      }
      of.push_back(&found->second);
      if (found->second.outcomes.empty() && std::find(to_do.begin(), to_do.end(), of.back()) == to_do.end()) {
        to_do.push_back(of.back());
      }
    }
    for (const Near& near : put_off)
      near_.push(near);
    result_.is_complete = in_parallel(options_, to_do.size(), [&](std::size_t i) {
      to_do[i]->outcomes = evaluate(request_, to_do[i]->candidate, to_do[i]->shardings);
    });
    take(wave, of);
  }

  std::optional<Outcome> recalled(const Candidate& candidate) const {
    return options_.recall ? options_.recall(candidate) : std::nullopt;
  }

  void take(std::span<Evaluated> wave, const std::vector<Simulation*>& of) {
    std::vector<Evaluated> fresh;
    for (std::size_t i = 0; i < wave.size(); ++i) {
      if (of[i]) {
        if (of[i]->outcomes.empty()) continue;  // stopped before
        const auto sharding = std::find(of[i]->shardings.begin(), of[i]->shardings.end(), wave[i].candidate.sharding);
        wave[i].outcome = of[i]->outcomes[static_cast<std::size_t>(sharding - of[i]->shardings.begin())];
        fresh.push_back(wave[i]);
      }
      ++result_.num_evaluated;
      --num_left_;
      standing_.add(wave[i]);
    }
    if (options_.record && !fresh.empty()) options_.record(fresh);
  }

  const SizeRequest& request_;
  const SearchOptions& options_;
  std::vector<CandidateFamily> families_;
  std::vector<std::size_t> first_of_;  // [family] the number of its first candidate
  Bounds bounds_;
  std::vector<Far> far_;  // the most promising last
  std::priority_queue<Near> near_;
  std::map<std::tuple<std::size_t, CutRule, ScheduleKind, int, Policy>, Simulation> simulations_;
  Standing standing_;
  std::size_t num_waiting_ = 0;  // after the first look
  std::size_t num_left_ = 0;
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

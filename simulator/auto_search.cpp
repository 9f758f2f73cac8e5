// SPDX-License-Identifier: Apache-2.0
#include "auto_search.hpp"

#include <algorithm>
#include <optional>

namespace plumb {
namespace {

// SplitMix64, a public-domain generator: its numbers are the same on every platform.
class Random {
 public:
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(next() % end); }
  bool one_in(std::size_t n) { return below(n) == 0; }

 private:
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  std::uint64_t state_ = 1;
};

// When the pipeline, run for one microbatch alone, would come to each chunk, and the work of its busiest rank.
struct Flow {
  explicit Flow(const ListProblem& problem) {
    std::int64_t at = 0;
    std::vector<std::int64_t> work(static_cast<std::size_t>(problem.layout.pp()), 0);
    for (std::size_t chunk = 0; chunk < problem.chunks(); ++chunk) {
      forward.push_back(at);
      at += problem.forward[chunk] + problem.hop_forward[chunk];
      work[problem.layout.rank_of(ChunkId(chunk)).index()] +=
          problem.forward[chunk] + problem.input[chunk] + problem.weight[chunk];
    }
    turn = at;
    input.resize(problem.chunks());
    for (std::size_t chunk = problem.chunks(); chunk-- > 0;) {
      input[chunk] = at;
      at += problem.input[chunk] + problem.hop_backward[chunk];
    }
    end = at;
    period = std::max<std::int64_t>(1, *std::max_element(work.begin(), work.end()));
  }

  std::vector<std::int64_t> forward;
  std::vector<std::int64_t> input;
  std::int64_t turn = 0;
  std::int64_t end = 0;
  std::int64_t period = 0;
};

// Steady keys and how much of its memory each rank uses.
struct Setting {
  SteadyKeys keys;
  std::vector<std::int64_t> limit;
  int seed = -1;  // as in FoundOrder
};

struct Tried {
  Setting setting;
  ListResult result;
};

class Search {
 public:
  Search(const ListProblem& problem, std::int64_t budget, const std::function<void(std::int64_t)>& spent)
      : whole_(problem), flow_(problem), budget_(budget), report_(spent) {}

  std::vector<FoundOrder> run(const std::vector<StrictTimes>& seeds, std::size_t most) {
    ListProblem part = shortened(whole_, short_microbatches());
    std::vector<Tried> best = sweep(part, seeds);
    const std::size_t starts = std::min<std::size_t>(best.size(), 4);
    best.resize(starts);
    const bool polish = whole_.num_computes() * 200 < budget_;
    const std::int64_t steady_end = polish ? budget_ * 2 / 5 : budget_ * 9 / 10;
    for (std::size_t i = 0; i < starts; ++i) {
      climb(part, best[i], spent_ + (steady_end - spent_) / static_cast<std::int64_t>(starts - i));
    }
    return finish(std::move(best), seeds, polish, most);
  }

 private:
  // Enough of them for a steady phase, few enough for a few hundred tries.
  int short_microbatches() const {
    const std::int64_t per_microbatch = whole_.num_computes() / whole_.layout.microbatches();
    const std::int64_t wanted = budget_ / 400 / per_microbatch;
    const std::int64_t least = 2LL * whole_.layout.pp();
    return static_cast<int>(std::min<std::int64_t>(whole_.layout.microbatches(), std::max(wanted, least)));
  }

  ListResult evaluate(ListProblem& problem, const ListKeys& keys, const std::vector<std::int64_t>& limit,
                      bool with_order = false) {
    problem.limit = limit;
    spent_ += problem.num_computes();
    ListScheduler scheduler(problem);
    ListResult result = scheduler.run(keys, with_order);
    report_(spent_);
    return result;
  }

  // Forward keys `stretch` eighths of the flow's own distances apart: small ones drive a microbatch through (few are in
  // flight), large ones take the early chunks of many first.
  Setting by_rule(int forward_stretch, int backward_stretch, bool backward_first, int weight_rule, int patience) const {
    Setting setting;
    setting.limit = limit_;
    SteadyKeys& keys = setting.keys;
    keys.period = flow_.period;
    keys.patience = patience;
    const std::int64_t far = flow_.period * (whole_.layout.microbatches() + 4LL) * 64 + flow_.end * 64;
    for (std::size_t chunk = 0; chunk < whole_.chunks(); ++chunk) {
      keys.of[0].push_back(flow_.forward[chunk] / 8 * forward_stretch);
      const std::int64_t input =
          flow_.turn / 8 * forward_stretch + (flow_.input[chunk] - flow_.turn) / 8 * backward_stretch;
      keys.of[1].push_back(backward_first ? input - far : input);
      keys.of[2].push_back(weight_rule == 0 ? input + far : input + (weight_rule - 1) * flow_.period);
    }
    return setting;
  }

  // The distances at which a known order runs its chunks, in its steady phase.
  Setting from_times(const StrictTimes& times, int patience) const {
    Setting setting;
    setting.limit = limit_;
    setting.keys.period = flow_.period;
    setting.keys.patience = patience;
    const std::size_t microbatches = whole_.microbatches();
    const std::size_t begin = microbatches / 3;
    const std::size_t end = std::max(begin + 1, microbatches * 2 / 3);
    const auto count = static_cast<std::int64_t>(end - begin);
    for (std::size_t op = 0; op < 3; ++op) {
      for (std::size_t chunk = 0; chunk < whole_.chunks(); ++chunk) {
        std::int64_t mean = 0;
        for (std::size_t m = begin; m < end; ++m) {
          mean += (times.start[op][whole_.at(chunk, m)] - static_cast<std::int64_t>(m) * flow_.period) / count;
        }
        setting.keys.of[op].push_back(mean);
      }
    }
    return setting;
  }

  std::vector<Tried> sweep(ListProblem& part, const std::vector<StrictTimes>& seeds) {
    std::vector<Tried> best;
    const std::int64_t end = budget_ / 4;
    const auto attempt = [&](Setting setting) {
      if (spent_ > end && !best.empty()) return;
      ListResult result = evaluate(part, spread(setting.keys, part), setting.limit);
      const auto place =
          std::find_if(best.begin(), best.end(), [&](const Tried& t) { return better(result, t.result); });
      best.insert(place, {std::move(setting), std::move(result)});
      if (best.size() > 24) best.pop_back();
    };
    for (std::size_t i = 0; i < seeds.size(); ++i) {
      Setting setting = from_times(seeds[i], 4);
      setting.seed = static_cast<int>(i);
      attempt(std::move(setting));
    }
    const int vp = whole_.layout.vp();
    for (const int patience : {4, 0, 8}) {
      for (const bool backward_first : {true, false}) {
        for (const int weight_rule : {0, 1, 2}) {
          for (const int forward : {8, 24 * vp, 0, 16, 32, 4}) {
            for (const int backward : {8, 24 * vp, 0, 16}) {
              if (backward_first && backward != 8 && vp == 1) continue;
              attempt(by_rule(forward, backward, backward_first, weight_rule, patience));
            }
          }
        }
      }
    }
    // Equal results come from equal orders, mostly: keep one of each.
    best.erase(std::unique(best.begin(), best.end(),
                           [](const Tried& a, const Tried& b) {
                             return a.result.makespan == b.result.makespan &&
                                    a.result.sum_of_ends == b.result.sum_of_ends;
                           }),
               best.end());
    return best;
  }

  std::int64_t shift() {
    const std::int64_t size = std::max<std::int64_t>(1, (flow_.period * 2) >> random_.below(7));
    return random_.one_in(2) ? size : -size;
  }

  void mutate(Setting& setting) {
    const std::size_t chunk = random_.below(whole_.chunks());
    const std::size_t op = random_.below(whole_.split ? 3 : 2);
    switch (random_.below(10)) {
      case 0:
        setting.keys.patience = static_cast<int>(random_.below(10));
        return;
      case 1: {
        const std::size_t rank = random_.below(setting.limit.size());
        change_limit(setting.limit[rank], rank);
        return;
      }
      case 2: {  // next to another computation of the same rank
        const std::vector<ChunkId> chunks = whole_.layout.chunks_on(whole_.layout.rank_of(ChunkId(chunk)));
        const std::size_t other = chunks[random_.below(chunks.size())].index();
        setting.keys.of[op][chunk] = setting.keys.of[random_.below(whole_.split ? 3 : 2)][other] +
                                     (random_.one_in(2) ? 1 : -1) +
                                     (static_cast<std::int64_t>(random_.below(5)) - 2) * flow_.period;
        return;
      }
      case 3: {  // one operation of a rank
        const std::int64_t by = shift();
        for (const ChunkId c : whole_.layout.chunks_on(whole_.layout.rank_of(ChunkId(chunk)))) {
          setting.keys.of[op][c.index()] += by;
        }
        return;
      }
      case 4: {  // everything from here down
        const std::int64_t by = shift();
        for (std::size_t c = chunk; c < whole_.chunks(); ++c)
          setting.keys.of[op][c] += by;
        return;
      }
      default:
        setting.keys.of[op][chunk] += shift();
    }
  }

  void change_limit(std::int64_t& limit, std::size_t rank) {
    std::int64_t least = 0;
    std::int64_t step = 0;
    for (const ChunkId chunk : whole_.layout.chunks_on(RankId(rank))) {
      least += whole_.held[chunk.index()];
      step = std::max(step, whole_.held[chunk.index()]);
    }
    const std::int64_t most = limit_[rank];
    if (limit == no_memory_limit) limit = least * 2LL * whole_.layout.pp();
    limit += step * (static_cast<std::int64_t>(random_.below(7)) - 3);
    limit = std::clamp(limit, least, most);
  }

  void climb(ListProblem& part, Tried& best, std::int64_t end) {
    while (spent_ < end) {
      Setting setting = best.setting;
      for (std::size_t n = 1 + random_.below(3); n > 0; --n)
        mutate(setting);
      ListResult result = evaluate(part, spread(setting.keys, part), setting.limit);
      if (better(best.result, result)) continue;
      best = {std::move(setting), std::move(result)};
    }
  }

  struct Whole {
    ListKeys keys;
    std::vector<std::int64_t> limit;
    ListResult result;
    int seed = -1;
  };

  std::vector<FoundOrder> finish(std::vector<Tried> settings, const std::vector<StrictTimes>& seeds, bool polish,
                                 std::size_t most) {
    std::vector<Whole> found;
    const auto add = [&](ListKeys keys, const std::vector<std::int64_t>& limit, int seed) {
      ListResult result = evaluate(whole_, keys, limit);
      found.push_back({std::move(keys), limit, std::move(result), seed});
    };
    for (const Tried& tried : settings)
      add(spread(tried.setting.keys, whole_), tried.setting.limit, tried.setting.seed);
    if (polish) {
      for (std::size_t i = 0; i < seeds.size(); ++i) {
        for (const int patience : {2, 8, strict_order}) {
          const StrictTimes& seed = seeds[i];
          add(ListKeys{{seed.start[0], seed.start[1], seed.start[2]}, patience}, limit_, static_cast<int>(i));
        }
      }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Whole& a, const Whole& b) { return better(a.result, b.result); });
    found.resize(std::min(found.size(), most));
    if (polish) {
      for (std::size_t i = 0; i < found.size(); ++i) {
        const std::int64_t share = (budget_ - spent_) / static_cast<std::int64_t>(found.size() - i);
        if (found[i].keys.patience != strict_order) {
          refine(found[i], spent_ + share / 2);
          found[i] = in_order(found[i]);
          refine(found[i], spent_ + share / 2);
        } else {
          refine(found[i], spent_ + share);
        }
      }
    }
    std::vector<FoundOrder> results;
    for (const Whole& whole : found)
      results.push_back({evaluate(whole_, whole.keys, whole.limit, true), whole.seed});
    std::stable_sort(results.begin(), results.end(),
                     [](const FoundOrder& a, const FoundOrder& b) { return better(a.result, b.result); });
    return results;
  }

  // The same step with its own start times for keys, so that it can change in ways that no greedy choice leads to.
  Whole in_order(const Whole& greedy) {
    Whole strict{{{}, strict_order}, limit_, {}, greedy.seed};
    for (std::vector<std::int64_t>& keys : strict.keys.of)
      keys.resize(whole_.chunks() * whole_.microbatches());
    for (const std::vector<ListCompute>& rank : evaluate(whole_, greedy.keys, greedy.limit, true).ranks) {
      std::int64_t last = -1;
      for (const ListCompute& compute : rank) {
        last = std::max(last + 1, compute.start);  // computations without a duration start together
        strict.keys.of[static_cast<std::size_t>(compute.op)][whole_.at(
            static_cast<std::size_t>(compute.chunk), static_cast<std::size_t>(compute.microbatch))] = last;
      }
    }
    strict.result = evaluate(whole_, strict.keys, limit_);
    return strict;
  }

  // Moves one operation of one chunk for some microbatches in a row.
  void refine(Whole& best, std::int64_t end) {
    const std::size_t microbatches = whole_.microbatches();
    ListKeys keys = best.keys;
    std::vector<std::int64_t> limit = best.limit;
    struct Change {
      std::size_t op, begin, end;
      std::int64_t by;
    };
    std::vector<Change> changes;
    const bool strict = keys.patience == strict_order;
    const auto apply = [&](const Change& change, std::int64_t sign) {
      for (std::size_t i = change.begin; i < change.end; ++i)
        keys.of[change.op][i] += sign * change.by;
    };
    while (spent_ < end) {
      changes.clear();
      const int patience = keys.patience;
      for (std::size_t n = 1 + random_.below(3); n > 0; --n) {
        const std::size_t chunk = random_.below(whole_.chunks());
        const std::size_t first = random_.below(microbatches);
        const std::size_t length = std::min(microbatches - first, std::size_t{1} << random_.below(6));
        const std::size_t begin = whole_.at(chunk, first);
        changes.push_back({random_.below(whole_.split ? 3 : 2), begin, begin + length, shift()});
        apply(changes.back(), 1);
      }
      if (!strict && random_.one_in(20)) keys.patience = static_cast<int>(random_.below(10));
      if (!strict && random_.one_in(20)) {
        const std::size_t rank = random_.below(limit.size());
        change_limit(limit[rank], rank);
      }
      ListResult result = evaluate(whole_, keys, limit);
      if (better(best.result, result)) {
        for (const Change& change : changes)
          apply(change, -1);
        keys.patience = patience;
        limit = best.limit;
      } else {
        best.result = std::move(result);
        best.keys.patience = keys.patience;
        best.limit = limit;
      }
    }
    best.keys = std::move(keys);
  }

  ListProblem whole_;
  const std::vector<std::int64_t> limit_ = whole_.limit;  // a try may use less of it
  Flow flow_;
  std::int64_t budget_;
  std::int64_t spent_ = 0;
  const std::function<void(std::int64_t)>& report_;
  Random random_;
};

}  // namespace

std::vector<FoundOrder> search_orders(const ListProblem& problem, const std::vector<StrictTimes>& seeds,
                                      std::int64_t budget, std::size_t most,
                                      const std::function<void(std::int64_t)>& spent) {
  return Search(problem, budget, spent).run(seeds, most);
}

}  // namespace plumb

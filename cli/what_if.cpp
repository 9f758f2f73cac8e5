// SPDX-License-Identifier: Apache-2.0
#include "what_if.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "costs.hpp"
#include "output.hpp"

namespace plumb::cli {

namespace {

// Computations and messages simulated for all answers together: about a microsecond each, several on shared networks.
constexpr double most_events = 30e6;
constexpr int fewest_answers = 8;
constexpr int most_answers = 40;
constexpr std::size_t most_shares = 12;
constexpr std::size_t most_what_if_rows = 16;

double share_of(SimTime part, SimTime step) {
  return step > SimTime(0) ? static_cast<double>(part.count()) / static_cast<double>(step.count()) : 0;
}

std::string sums_text(const std::vector<PathShare>& shares, SimTime step) {
  std::map<PathKind, SimTime> sums;
  for (const PathShare& share : shares)
    sums[share.kind] += share.time;
  std::string text;
  for (const auto& [kind, time] : sums)
    text += fmt::format("{}{} {} ms ({})", text.empty() ? "" : ", ", to_string(kind), milliseconds(time),
                        percent(share_of(time, step)));
  return text;
}

}  // namespace

WhatIfs resolve_what_ifs(const Options& options, const Program& program, const CostModel& costs,
                         const std::optional<NetworkModel>& network, const Timeline& timeline) {
  const NetworkModel* shared = network ? &*network : nullptr;
  WhatIfs found;
  found.path = critical_path(program, costs, timeline, shared);
  double events = static_cast<double>(program.messages.size()) * (network ? 6 : 1);
  for (const RankProgram& rank : program.ranks)
    events += static_cast<double>(rank.compute.size());
  const int affordable = static_cast<int>(std::min<double>(most_answers, most_events / std::max(events, 1.0)));
  found.rows = what_if(
      program, costs, timeline, found.path,
      {.most = std::max(fewest_answers, affordable), .simulation = resolve_simulation(options), .network = shared});
  return found;
}

std::string what_if_text(const WhatIfs& found, SimTime step, std::string_view whole) {
  const std::vector<PathShare> shares = path_shares(found.path);
  std::string text = fmt::format("the longest chain is the {}: {}\n", whole, sums_text(shares, step));
  const std::string share = fmt::format("of the {}", whole);
  Table chain({"on the longest chain", "times", "ms", share});
  for (std::size_t i = 0; i < std::min(shares.size(), most_shares); ++i)
    chain.add({name_of(shares[i]), fmt::to_string(shares[i].count), milliseconds(shares[i].time),
               percent(share_of(shares[i].time, step))});
  text += chain.text();
  if (shares.size() > most_shares) text += fmt::format("and {} more\n", shares.size() - most_shares);
  Table table({"a tenth less time for", fmt::format("{} ms", whole), "saves ms", share});
  for (std::size_t i = 0; i < std::min(found.rows.size(), most_what_if_rows); ++i) {
    const WhatIf& row = found.rows[i];
    table.add({row.what, milliseconds(row.step), milliseconds(row.saves), percent(share_of(row.saves, step))});
  }
  return text + "\n" + table.text();
}

std::string what_if_json(const WhatIfs& found) {
  std::vector<std::string> shares;
  for (const PathShare& share : path_shares(found.path))
    shares.push_back(fmt::format(R"({{"kind":"{}","rank":{},"to_rank":{},"count":{},"time_us":{}}})",
                                 to_string(share.kind), share.rank.value, share.to.value, share.count,
                                 to_us(share.time)));
  std::vector<std::string> rows;
  for (const WhatIf& row : found.rows)
    rows.push_back(
        fmt::format(R"({{"what":"{}","step_us":{},"saves_us":{}}})", row.what, to_us(row.step), to_us(row.saves)));
  return fmt::format(R"("critical_path":[{}],"what_if":[{}])", fmt::join(shares, ","), fmt::join(rows, ","));
}

}  // namespace plumb::cli

// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/against.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "costs.hpp"
#include "output.hpp"
#include "plumb/cache/encode.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb::cli {

namespace {

constexpr std::size_t most_differences = 10;

// A rank has left the prediction when an action is off by this share of the step.
constexpr double parting_share = 0.01;

// What the other steps of the log say: the shortest, and what would be left of all of them without disturbance.
struct Bounds {
  SimTime least{0};
  SimTime undisturbed{0};
};

Bounds bounds_of(const Program& program, const MeasuredLog& log) {
  SimTime least = log.steps.front().step;
  for (const Timeline& step : log.steps)
    least = std::min(least, step.step);
  return {least, undisturbed(program, log.steps).step};
}

// How far a measured time is from the predicted, as a share of it.
double beyond(SimTime measured, SimTime predicted) {
  return predicted > SimTime(0) ? static_cast<double>(measured.count()) / static_cast<double>(predicted.count()) - 1
                                : 0;
}

std::string signed_ms(SimTime time) { return fmt::format("{:+.3f}", to_us(time) / 1000); }

// The first action of each rank that is off by more than the share; null if none is.
std::vector<const ActionAgainst*> partings(const Against& against, std::size_t num_ranks) {
  const double most = std::abs(to_us(against.predicted_step)) * parting_share;
  std::vector<const ActionAgainst*> first(num_ranks, nullptr);
  for (const ActionAgainst& action : against.actions) {
    const ActionAgainst*& parting = first[action.rank.index()];
    if (parting == nullptr && std::abs(to_us(action.lag())) > most) {
      parting = &action;
    }
  }
  return first;
}

SimTime lag_at_end(const Against& against, RankId rank) {
  SimTime lag{0};
  for (const ActionAgainst& action : against.actions) {
    if (action.rank == rank) {
      lag = action.lag() + action.measured_time - action.predicted_time;
    }
  }
  return lag;
}

template <class Row>
std::vector<const Row*> largest(const std::vector<Row>& rows) {
  std::vector<const Row*> order;
  for (const Row& row : rows) {
    order.push_back(&row);
  }
  const auto size_of = [](const Row* row) { return row->added < SimTime(0) ? -row->added : row->added; };
  std::stable_sort(order.begin(), order.end(), [&](const Row* a, const Row* b) { return size_of(a) > size_of(b); });
  order.resize(std::min(order.size(), most_differences));
  return order;
}

void print_tables(const Against& against, const MeasuredLog& log, const Bounds& bounds, std::size_t step,
                  std::size_t num_ranks) {
  fmt::print("step {} by {}, the middle one of {}: measured {} ms, predicted {} ms, {:+.2f} %\n", log.numbers[step],
             log.made_by, log.steps.size(), milliseconds(against.measured_step), milliseconds(against.predicted_step),
             against.difference() * 100);
  fmt::print("the shortest step {} ms, {:+.2f} %; with everything at its least over all steps {} ms, {:+.2f} %\n\n",
             milliseconds(bounds.least), beyond(bounds.least, against.predicted_step) * 100,
             milliseconds(bounds.undisturbed), beyond(bounds.undisturbed, against.predicted_step) * 100);
  Table ranks({"rank", fmt::format("first action off by {:g} % of the step", parting_share * 100), "predicted ms",
               "measured ms", "late at the end ms"});
  const std::vector<const ActionAgainst*> first = partings(against, num_ranks);
  for (std::size_t r = 0; r < num_ranks; ++r) {
    const ActionAgainst* at = first[r];
    ranks.add({fmt::to_string(r), at == nullptr ? "-" : to_string(at->action),
               at == nullptr ? "-" : milliseconds(at->predicted_start),
               at == nullptr ? "-" : milliseconds(at->measured_start), signed_ms(lag_at_end(against, RankId(r)))});
  }
  fmt::print("{}\nactions that added most (late: start; added: at the end, beyond what they inherited)\n",
             ranks.text());
  Table actions({"rank", "action", "start ms", "late ms", "took ms", "predicted", "added ms"});
  for (const ActionAgainst* row : largest(against.actions)) {
    actions.add({fmt::to_string(row->rank.value), to_string(row->action), milliseconds(row->measured_start),
                 signed_ms(row->lag()), milliseconds(row->measured_time), milliseconds(row->predicted_time),
                 signed_ms(row->added)});
  }
  fmt::print("{}\ntransfers that added most (queue: ready at both ends, not started; wire: start to arrival)\n",
             actions.text());
  Table transfers(
      {"message", "ranks", "arrival ms", "late ms", "queue ms", "predicted", "wire ms", "predicted", "added ms"});
  for (const TransferAgainst* row : largest(against.transfers)) {
    transfers.add({row->action, fmt::format("{}->{}", row->from.value, row->to.value),
                   milliseconds(row->measured_arrival), signed_ms(row->lag()), milliseconds(row->measured_queue),
                   milliseconds(row->predicted_queue), milliseconds(row->measured_wire),
                   milliseconds(row->predicted_wire), signed_ms(row->added)});
  }
  fmt::print("{}", transfers.text());
}

void print_json(const Against& against, const MeasuredLog& log, const Bounds& bounds, std::size_t step,
                std::size_t num_ranks) {
  using Json = nlohmann::ordered_json;
  Json json{{"step", log.numbers[step]},
            {"steps", log.steps.size()},
            {"made_by", log.made_by},
            {"predicted_step_us", to_us(against.predicted_step)},
            {"measured_step_us", to_us(against.measured_step)},
            {"difference", against.difference()},
            {"least_step_us", to_us(bounds.least)},
            {"undisturbed_step_us", to_us(bounds.undisturbed)},
            {"ranks", Json::array()},
            {"actions", Json::array()},
            {"transfers", Json::array()}};
  const std::vector<const ActionAgainst*> first = partings(against, num_ranks);
  for (std::size_t r = 0; r < num_ranks; ++r) {
    json["ranks"].push_back({{"rank", r},
                             {"parts_at", first[r] == nullptr ? Json(nullptr) : Json(to_string(first[r]->action))},
                             {"lag_at_end_us", to_us(lag_at_end(against, RankId(r)))}});
  }
  for (const ActionAgainst& row : against.actions) {
    json["actions"].push_back({{"rank", row.rank.value},
                               {"action", to_string(row.action)},
                               {"predicted_start_us", to_us(row.predicted_start)},
                               {"measured_start_us", to_us(row.measured_start)},
                               {"predicted_us", to_us(row.predicted_time)},
                               {"measured_us", to_us(row.measured_time)},
                               {"lag_us", to_us(row.lag())},
                               {"added_us", to_us(row.added)}});
  }
  for (const TransferAgainst& row : against.transfers) {
    json["transfers"].push_back({{"message", row.message.value},
                                 {"action", row.action},
                                 {"from_rank", row.from.value},
                                 {"to_rank", row.to.value},
                                 {"predicted_arrival_us", to_us(row.predicted_arrival)},
                                 {"measured_arrival_us", to_us(row.measured_arrival)},
                                 {"predicted_queue_us", to_us(row.predicted_queue)},
                                 {"measured_queue_us", to_us(row.measured_queue)},
                                 {"predicted_wire_us", to_us(row.predicted_wire)},
                                 {"measured_wire_us", to_us(row.measured_wire)},
                                 {"lag_us", to_us(row.lag())},
                                 {"added_us", to_us(row.added)}});
  }
  fmt::print("{}\n", json.dump());
}

}  // namespace

bool is_log_of(const std::string& file, const Program& program) {
  std::ifstream in(file);
  std::string header;
  std::getline(in, header);
  const nlohmann::json json = nlohmann::json::parse(header, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.value("program", nlohmann::json()) == to_string(digest(program));
}

int run_against(const Options& options, const Program& program, const Timeline& predicted) {
  std::ifstream in(options.against);
  if (!in || std::filesystem::is_directory(options.against)) {
    throw InputError(fmt::format("--against {}: cannot be read", options.against));
  }
  const MeasuredLog log = read_event_log(in, options.against, program);
  // Only one kind of impairment can be simulated here, and the flag for it may be missing or too much.
  const std::size_t impairment = log.made_by.find("--impair ");
  if (impairment != std::string::npos) {
    fmt::print(stderr, "the run was made with {}; the prediction is for links {}\n",
               one_line(log.made_by.substr(impairment)),
               options.single_stream ? "of one stream per rank (--single-stream)" : "without it");
  }
  const std::size_t step = median_step(log);
  const Against against = compare_against(program, predicted, log.steps[step]);
  (options.json ? print_json : print_tables)(against, log, bounds_of(program, log), step, program.ranks.size());
  return 0;
}

}  // namespace plumb::cli

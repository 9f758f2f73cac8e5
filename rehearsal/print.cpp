// SPDX-License-Identifier: Apache-2.0
#include "print.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costs.hpp"
#include "output.hpp"

namespace plumb::rehearsal {
namespace {

using Json = nlohmann::ordered_json;

std::string ms(double us) { return fmt::format("{:.3f}", us / 1000); }
std::string ms(SimTime time) { return ms(to_us(time)); }
std::string signed_percent(double share) { return fmt::format("{:+.2f} %", share * 100); }

std::string impairment_sentence(Impairment impairment) {
  return impairment == Impairment::none ? "" : fmt::format("impaired: {}\n", name_of(impairment).sentence);
}

Json exposure_json(const Exposure& exposure) {
  return {{"wait", to_us(exposure.wait)}, {"queue", to_us(exposure.queue)}, {"wire", to_us(exposure.wire)}};
}

Json ranks_json(const SimReport& report, const std::vector<Exposure>& exposures, const Program& program) {
  Json ranks = Json::parse(to_json(report))["ranks"];
  for (std::size_t r = 0; r < exposures.size(); ++r) {
    ranks[r]["exposed_us"] = exposure_json(exposures[r]);
    ranks[r]["value_slots"] = program.ranks[r].num_value_slots;
    ranks[r]["gradient_slots"] = program.ranks[r].num_gradient_slots;
  }
  return ranks;
}

Json times_json(const StepTimes& times) {
  return {{"step_us", times.median_us}, {"spread_us", times.spread_us}, {"all_us", times.all_us}};
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string step_table(const RehearsalReport& report) {
  cli::Table table({"", "measured ms", "spread ms", "predicted ms", "difference"});
  if (report.baseline) {
    table.add({"standard residual", ms(report.baseline->median_us), ms(report.baseline->spread_us),
               ms(*report.predicted_baseline_us),
               signed_percent(report.baseline->median_us / *report.predicted_baseline_us - 1)});
  }
  table.add({"step", ms(report.program.median_us), ms(report.program.spread_us), ms(report.predicted.step),
             signed_percent(report.difference())});
  if (report.overhead) {
    table.add({"overhead", signed_percent(*report.overhead), "", signed_percent(*report.predicted_overhead),
               fmt::format("{:+.2f} points", (*report.overhead - *report.predicted_overhead) * 100)});
  }
  return table.text();
}

std::string rank_table(const Program& program, const RehearsalReport& report) {
  cli::Table table({"rank", "busy ms", "idle ms", "exposed ms", "wait", "queue", "wire", "predicted ms", "wait",
                    "queue", "wire", "slots", "peak bytes"});
  for (std::size_t r = 0; r < report.measured.ranks.size(); ++r) {
    const RankReport& rank = report.measured.ranks[r];
    const Exposure& is = report.measured_exposure[r];
    const Exposure& was = report.predicted_exposure[r];
    table.add({fmt::to_string(r), ms(rank.busy), ms(rank.bubble.total()), ms(is.total()), ms(is.wait), ms(is.queue),
               ms(is.wire), ms(was.total()), ms(was.wait), ms(was.queue), ms(was.wire),
               fmt::format("{}+{}", program.ranks[r].num_value_slots, program.ranks[r].num_gradient_slots),
               cli::bytes_text(static_cast<double>(rank.memory.bytes))});
  }
  return table.text();
}

}  // namespace

std::string verdict(const RehearsalReport& report) {
  if (report.num_mismatches > 0) {
    return fmt::format("{} mismatches of {} values and sums checked; the first: {}", report.num_mismatches,
                       report.num_checked, report.first_mismatch);
  }
  if (report.wire_bytes != report.formula_bytes || report.simulated_bytes != report.formula_bytes) {
    return fmt::format("bytes per step differ: formula {}, simulated {}, wire {}", report.formula_bytes,
                       report.simulated_bytes, report.wire_bytes);
  }
  return {};
}

std::string report_table(const Setup& setup, const RehearsalReport& report, const Usage& usage) {
  const Program& program = *setup.plan.program;
  std::string text =
      fmt::format("{}\n{}, {} ranks x {} virtual stages, {} microbatches, routing {}; {} steps\n{}\n", setup.depth,
                  setup.schedule, program.layout.pp(), program.layout.vp(), program.layout.microbatches(),
                  to_string(program.routing.policy), setup.plan.steps, impairment_sentence(setup.impairment));
  text += step_table(report) + "\n";
  text += "exposed communication per rank, of the step with the median time (slots: values + gradients)\n";
  text += rank_table(program, report) + "\n";
  text += fmt::format("bytes per step: formula {}, simulated {}, wire {}\n", report.formula_bytes,
                      report.simulated_bytes, report.wire_bytes);
  text += fmt::format("{} messages; {} values and sums checked, {} mismatches\n", report.num_messages,
                      report.num_checked, report.num_mismatches);
  text += fmt::format("{:.2f} of {} cores used on average\n", usage.cores_used(), usage.cores);
  return text;
}

std::string report_json(const Setup& setup, const RehearsalReport& report, const Usage& usage) {
  const Program& program = *setup.plan.program;
  Json json{{"step_us", report.program.median_us},
            {"spread_us", report.program.spread_us},
            {"overhead_over_standard", or_null(report.overhead)},
            {"predicted_step_us", to_us(report.predicted.step)},
            {"difference", report.difference()},
            {"predicted_overhead_over_standard", or_null(report.predicted_overhead)},
            {"standard", nullptr},
            {"all_us", report.program.all_us},
            {"impair", name_of(setup.impairment).name},
            {"links", setup.emulate_links ? "emulated" : "real"},
            {"ranks", ranks_json(report.measured, report.measured_exposure, program)},
            {"predicted_ranks", ranks_json(report.predicted, report.predicted_exposure, program)},
            {"bytes_per_step",
             {{"formula", report.formula_bytes}, {"simulated", report.simulated_bytes}, {"wire", report.wire_bytes}}},
            {"messages", report.num_messages},
            {"checked", report.num_checked},
            {"mismatches", report.num_mismatches},
            {"cores_used", usage.cores_used()},
            {"cores", usage.cores}};
  if (report.baseline) {
    json["standard"] = times_json(*report.baseline);
    json["standard"]["predicted_step_us"] = *report.predicted_baseline_us;
  }
  return json.dump();
}

}  // namespace plumb::rehearsal

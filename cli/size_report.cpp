// SPDX-License-Identifier: Apache-2.0
#include "size_report.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "output.hpp"
#include "plumb/schedule/error.hpp"
#include "size_advice.hpp"
#include "warnings.hpp"

namespace plumb::cli {
namespace {

// What prints as zero in steps of `step` has no minus before it.
double shown(double value, double step = 0.1) { return std::abs(value) < step / 2 ? 0 : value; }

double gib(double bytes) { return bytes / (1 << 30); }

double tokens_per_s_per_gpu(const SizeRequest& request, const Outcome& outcome) {
  return static_cast<double>(request.global_batch) * request.sequence / (outcome.step_us() * 1e-6) / request.gpus;
}

std::string schedule_text(const Candidate& c) {
  return c.group > 0 ? fmt::format("{}, group {}", to_string(c.schedule), c.group) : std::string(to_string(c.schedule));
}

Table layouts_table(std::vector<std::string> first) {
  for (const char* column : {"pp", "vp", "tp", "ep", "dp", "batch", "schedule", "cache", "recompute", "sharded", "cuts",
                             "step s", "tokens/s/GPU", "bubble", "peak GiB", "net GB"})
    first.emplace_back(column);
  return Table(std::move(first));
}

void add_layout(Table& table, const std::string& first, const SizeRequest& request, const Evaluated& one) {
  const auto& [c, o, order] = one;
  table.add({first, fmt::to_string(c.pp), fmt::to_string(c.vp), fmt::to_string(c.degrees.tp),
             fmt::to_string(c.degrees.ep), fmt::to_string(c.degrees.dp),
             fmt::format("{}x{}", c.microbatches, c.microbatch), schedule_text(c), std::string(to_string(c.policy)),
             std::string(to_string(c.recompute)), std::string(to_string(c.sharding)), std::string(to_string(c.cuts)),
             fmt::format("{:.3f}", o.step_us() * 1e-6), fmt::format("{:.0f}", tokens_per_s_per_gpu(request, o)),
             fmt::format("{:.1f} %", shown(o.bubble * 100)), fmt::format("{:.1f}", gib(o.peak_bytes)),
             fmt::format("{:.1f}", o.network_bytes * 1e-9)});
}

// Where the time of a step goes, in milliseconds, mean over ranks: the parts add up to it.
struct Parts {
  double compute = 0;
  double idle = 0;
  double exposed = 0;
  double end = 0;
};

Parts parts_of(const Outcome& o) {
  return {.compute = o.pipeline_us * (1 - o.bubble) * 1e-3,
          .idle = (o.pipeline_us * o.bubble - o.exposed_us) * 1e-3,
          .exposed = o.exposed_us * 1e-3,
          .end = o.step_end_us * 1e-3};
}

// The parts of the winner in full, of the others by how much they are more.
std::string why_text(const SearchResult& result) {
  const Evaluated& winner = result.best.front();
  const Parts own = parts_of(winner.outcome);
  Table table({"against", "step ms", "compute", "idle", "exposed", "end", "peak GiB", "net GB", "layout"});
  const auto add = [&](const std::string& name, double step, const Parts& parts, const char* format,
                       const Evaluated& one) {
    const auto number = [&](double value) { return fmt::format(fmt::runtime(format), shown(value)); };
    table.add({name, number(step), number(parts.compute), number(parts.idle), number(parts.exposed), number(parts.end),
               fmt::format("{:.1f}", gib(one.outcome.peak_bytes)),
               fmt::format("{:.1f}", one.outcome.network_bytes * 1e-9), to_string(one.candidate)});
  };
  add("the first", winner.outcome.step_us() * 1e-3, own, "{:.1f}", winner);
  const auto against = [&](std::string_view name, const Evaluated& other) {
    const Parts parts = parts_of(other.outcome);
    add(std::string(name), (other.outcome.step_us() - winner.outcome.step_us()) * 1e-3,
        {parts.compute - own.compute, parts.idle - own.idle, parts.exposed - own.exposed, parts.end - own.end},
        "{:+.1f}", other);
  };
  if (result.best.size() > 1) against("the second", result.best[1]);
  for (const Evaluated& other : result.by_schedule) {
    if (other.candidate.schedule != winner.candidate.schedule) against(to_string(other.candidate.schedule), other);
  }
  for (const Evaluated& other : result.by_policy) {
    if (other.candidate.policy != winner.candidate.policy) against(to_string(other.candidate.policy), other);
  }
  return fmt::format(
      "\nWhy the first, against the second and the best of each other schedule and policy (milliseconds "
      "more, mean over ranks):\n\n{}",
      table.text());
}

const Evaluated* best_in_megatron(const SearchResult& result) {
  const Evaluated* best = nullptr;
  for (const Evaluated& one : result.by_schedule) {
    if (megatron_runs(one.candidate) && (!best || one.outcome.step_us() < best->outcome.step_us())) best = &one;
  }
  return best;
}

std::string indented(const std::string& lines) {
  std::string text;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = lines.find('\n', at);
    text += end == at ? "\n" : fmt::format("  {}\n", lines.substr(at, end - at));
    at = end + 1;
  }
  return text;
}

std::string use_text(const Options& options, const SizeRequest& request, const SearchResult& result) {
  const Evaluated& winner = result.best.front();
  constexpr const char* csv = "schedule.csv";
  std::string text = fmt::format("\nTo look at the first:\n  {}\n", sim_command(options, request, winner.candidate));
  text += fmt::format("\nFor torch, the order as a table:\n  {}\n", plan_command(winner.candidate, csv));
  if (const std::string lack = frameworks_lack(request); !lack.empty()) text += fmt::format("\n{}\n", lack);
  if (const std::string obstacle = torchtitan_obstacle(request, winner.candidate); !obstacle.empty()) {
    text += fmt::format("\ntorchtitan cannot run this layout: {}.\n", obstacle);
  } else {
    text += "\nFor torchtitan:\n" + indented(torchtitan_toml(request, winner.candidate, csv));
  }
  const Evaluated* megatron = best_in_megatron(result);
  if (megatron == nullptr) return text + "\nMegatron-LM has neither schedule of those that fit.\n";
  text += fmt::format("\nFor Megatron-LM{}:\n",
                      megatron_runs(winner.candidate)
                          ? ""
                          : fmt::format(", which has no {}, the best that it has ({:.3f} s)",
                                        to_string(winner.candidate.schedule), megatron->outcome.step_us() * 1e-6));
  text += fmt::format("  {} \\\n  --pipeline-model-parallel-layout \"{}\"\n",
                      fmt::join(megatron_flags(request, megatron->candidate), " \\\n  "),
                      megatron_layout(request, megatron->candidate));
  return text;
}

std::string to_json(const Options& options, const SizeRequest& request, const Evaluated& one, const std::string& why) {
  const auto& [c, o, order] = one;
  std::string text = fmt::format(
      "{{\"pp\":{},\"vp\":{},\"tp\":{},\"ep\":{},\"dp\":{},\"sharding\":\"{}\",\"microbatches\":{},"
      "\"microbatch_sequences\":{},\"schedule\":\"{}\",\"group\":{},\"cache\":\"{}\",\"recompute\":\"{}\",\"cuts\":[{}]"
      ","
      "\"cuts_by\":\"{}\"",
      c.pp, c.vp, c.degrees.tp, c.degrees.ep, c.degrees.dp, to_string(c.sharding), c.microbatches, c.microbatch,
      to_string(c.schedule), c.group > 0 ? fmt::to_string(c.group) : "null", to_string(c.policy),
      to_string(c.recompute), fmt::join(cuts_of(request, c), ","), to_string(c.cuts));
  text += fmt::format(
      ",\"step_us\":{},\"pipeline_us\":{},\"step_end_us\":{},\"tokens_per_s_per_gpu\":{},\"bubble_over_step\":{},"
      "\"exposed_comm_us\":{},\"peak_bytes\":{:.0f},\"peak_rank\":{},\"network_bytes_per_device\":{:.0f}",
      o.step_us(), o.pipeline_us, o.step_end_us, tokens_per_s_per_gpu(request, o), o.bubble, o.exposed_us, o.peak_bytes,
      o.peak_rank, o.network_bytes);
  return text +
         fmt::format(",\"command\":{},\"why\":{}}}", json_quoted(sim_command(options, request, c)), json_quoted(why));
}

}  // namespace

std::string words_of(const Candidate& c) {
  return fmt::format("pp {} x vp {}, tp {}, ep {}, dp {}, {} microbatches of {}, {}, {}, recompute {}, sharded {}",
                     c.pp, c.vp, c.degrees.tp, c.degrees.ep, c.degrees.dp, c.microbatches, c.microbatch,
                     schedule_text(c), to_string(c.policy), to_string(c.recompute), to_string(c.sharding));
}

std::string comparison(const Evaluated& one, const Evaluated& other) {
  const Outcome& a = one.outcome;
  const Outcome& b = other.outcome;
  const Parts own = parts_of(a);
  const Parts parts = parts_of(b);
  return fmt::format(
      "{:+.2f} %: compute {:+.1f} ms, idle {:+.1f} ms, exposed communication {:+.1f} ms, end of step {:+.1f} ms; peak "
      "{:.1f} against {:.1f} GiB, network {:.1f} against {:.1f} GB",
      shown((b.step_us() / a.step_us() - 1) * 100, 0.01), shown(parts.compute - own.compute),
      shown(parts.idle - own.idle), shown(parts.exposed - own.exposed), shown(parts.end - own.end), gib(b.peak_bytes),
      gib(a.peak_bytes), b.network_bytes * 1e-9, a.network_bytes * 1e-9);
}

std::string size_text(const Options& options, const SizeRequest& request, const SearchResult& result,
                      const std::vector<Missed>& missed) {
  std::string text =
      fmt::format("{} on {} x {} ({}): {} sequences of {} tokens per step, {:.1f} GiB per device to use\n",
                  one_line(request.shape.name), request.gpus, request.cluster.gpu.name, one_line(request.cluster.name),
                  request.global_batch, request.sequence, gib(request.memory_bytes));
  text += fmt::format("{} candidates: {} do not fit, {} cannot matter by their bounds, {} simulated{}\n",
                      result.num_candidates, result.num_too_large, result.num_dropped, result.num_evaluated,
                      result.is_complete ? "" : "; interrupted, the best may be among the rest");
  if (result.best.empty()) return text;
  Table best = layouts_table({"#"});
  for (std::size_t i = 0; i < result.best.size(); ++i)
    add_layout(best, fmt::to_string(i + 1), request, result.best[i]);
  text += "\n" + best.text();
  text += fmt::format("\nNo other is better in time, memory and network at once ({}):\n\n", result.pareto.size());
  Table pareto = layouts_table({" "});
  for (const Evaluated& one : result.pareto)
    add_layout(pareto, "", request, one);
  text += pareto.text();
  text += why_text(result);
  for (const Missed& one : missed)
    text += fmt::format("{}Not among them: {}.\n", &one == &missed.front() ? "\n" : "",
                        missed_text(request, result.best.front(), one));
  return text + use_text(options, request, result);
}

std::string size_json(const Options& options, const SizeRequest& request, const SearchResult& result,
                      const std::optional<Misfit>& misfit, const std::vector<Missed>& missed) {
  const auto list = [&](const std::vector<Evaluated>& all) {
    std::vector<std::string> items;
    for (const Evaluated& one : all) {
      const bool first = one.order == result.best.front().order;
      const std::string why = !first ? comparison(result.best.front(), one)
                              : result.best.size() > 1
                                  ? "the fastest; the second, " + words_of(result.best[1].candidate) + ": " +
                                        comparison(one, result.best[1])
                                  : "the only layout that fits";
      items.push_back(to_json(options, request, one, why));
    }
    return fmt::format("[{}]", fmt::join(items, ","));
  };
  std::string text = fmt::format(
      "{{\"candidates_tried\":{},\"candidates\":{},\"candidates_too_large\":{},\"candidates_dropped\":{},"
      "\"complete\":{},\"model\":{},\"cluster\":{},\"gpus\":{},\"global_batch\":{},\"sequence\":{},"
      "\"memory_limit_bytes\":{:.0f},\"left_out\":{},\"best\":{},\"pareto\":{},\"by_schedule\":{},\"by_policy\":{}",
      result.num_evaluated, result.num_candidates, result.num_too_large, result.num_dropped, result.is_complete,
      json_quoted(request.shape.name), json_quoted(request.cluster.name), request.gpus, request.global_batch,
      request.sequence, request.memory_bytes, left_out_json(options), list(result.best), list(result.pareto),
      list(result.by_schedule), list(result.by_policy));
  std::vector<std::string> faster;
  for (const Missed& one : missed) {
    const Evaluated evaluated{one.candidate, one.outcome};
    faster.push_back(to_json(options, request, evaluated, missed_text(request, result.best.front(), one)));
    faster.back().pop_back();
    faster.back() += fmt::format(",\"lack_bytes\":{:.0f}}}", one.outcome.peak_bytes - request.memory_bytes);
  }
  text += fmt::format(",\"would_be_faster\":[{}]", fmt::join(faster, ","));
  if (misfit) {
    const Footprint& held = misfit->need.held;
    text += fmt::format(
        ",\"misfit\":{{\"text\":{},\"rank\":{},\"needed_bytes\":{:.0f},\"weights_bytes\":{:.0f},\"gradients_bytes\":"
        "{:.0f},\"optimizer_bytes\":{:.0f},\"workspace_bytes\":{:.0f},\"activation_bytes\":{:.0f},\"block_bytes\":"
        "{:.0f}}}",
        json_quoted(misfit_text(request, *misfit)), misfit->need.rank, misfit->need.total(), held.weights_bytes,
        held.gradients_bytes, held.optimizer_bytes, held.workspace_bytes, misfit->need.activation_bytes,
        misfit->need.block_bytes);
  }
  if (!result.best.empty()) {
    const Candidate& winner = result.best.front().candidate;
    const std::string obstacle = torchtitan_obstacle(request, winner);
    text += fmt::format(",\"use\":{{\"sim\":{},\"plan\":{},\"note\":{},\"torchtitan\":{},\"torchtitan_obstacle\":{}",
                        json_quoted(sim_command(options, request, winner)),
                        json_quoted(plan_command(winner, "schedule.csv")), json_quoted(frameworks_lack(request)),
                        obstacle.empty() ? json_quoted(torchtitan_toml(request, winner, "schedule.csv")) : "null",
                        json_quoted(obstacle));
    if (const Evaluated* megatron = best_in_megatron(result)) {
      text += fmt::format(",\"megatron\":{{\"layout\":{},\"flags\":{}}}",
                          json_quoted(megatron_layout(request, megatron->candidate)),
                          json_quoted(fmt::format("{}", fmt::join(megatron_flags(request, megatron->candidate), " "))));
    }
    text += "}";
  }
  return text + "}\n";
}

}  // namespace plumb::cli

// SPDX-License-Identifier: Apache-2.0
#include "step_memory.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cluster.hpp"
#include "costs.hpp"
#include "output.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/simulator/compare.hpp"
#include "plumb/simulator/network.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/sizing/cluster_file.hpp"
#include "plumb/sizing/footprint.hpp"
#include "plumb/sizing/roofline.hpp"

namespace plumb::cli {

std::size_t fullest(const std::vector<ClassPeak>& ranks) {
  const auto most = std::max_element(ranks.begin(), ranks.end(),
                                     [](const ClassPeak& a, const ClassPeak& b) { return a.bytes() < b.bytes(); });
  return static_cast<std::size_t>(most - ranks.begin());
}

namespace {

constexpr double bytes_per_gib = 1 << 30;
constexpr std::size_t most_messages = 200'000;  // for which the step is simulated twice more
constexpr const char* recompute_names[] = {"none", "selective", "full"};
constexpr Sharding shardings[] = {Sharding::none, Sharding::optimizer, Sharding::gradients};

std::int64_t whole(double bytes) { return static_cast<std::int64_t>(std::ceil(bytes)); }

double usable_bytes(const Gpu& gpu) { return gpu.mem_GiB * gpu.usable_mem_fraction * bytes_per_gib; }

Options with_recompute(const Options& options, const std::string& name) {
  Options other = options;
  other.recompute = name;
  return other;
}

// What is there all the time under another sharding.
std::vector<std::int64_t> static_bytes(const Options& options, const DepthMap& depth, Sharding sharding) {
  std::vector<std::int64_t> totals;
  for (const Footprint& one : footprints(load_shape(*options.model), depth.cuts(), resolve_layout(options),
                                         resolve_batch(options, depth), sharding))
    totals.push_back(whole(one.total()));
  return totals;
}

std::vector<ClassPeak> peaks_with(const Options& options, const Schedule& schedule, const Depth& depth,
                                  const UnitBytes& bytes, const std::optional<NetworkModel>& network, SimTime& step) {
  const CostModel costs = resolve_sim_costs(options, depth.map, bytes);
  const SimOptions simulation = resolve_simulation(options);
  PlanCosts plan = costs.plan_costs();
  plan.duplex = planned_duplex(simulation, network ? &*network : nullptr);
  const Program program =
      lower(schedule, depth.map, resolve_policy(options, depth.map), {.post_ahead = options.post_ahead, .costs = plan});
  const Timeline timeline = network ? simulate_network(program, costs, *network) : simulate(program, costs, simulation);
  step = timeline.step;
  return class_peaks(program, timeline, device_bytes(options, depth.map, bytes));
}

std::string gib_text(std::int64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / bytes_per_gib); }

// Classes of which no rank holds anything are left out.
std::vector<MemoryClass> used_classes(const std::vector<ClassPeak>& ranks) {
  std::vector<MemoryClass> used;
  for (std::size_t c = 0; c < num_memory_classes; ++c) {
    const auto what = static_cast<MemoryClass>(c);
    if (std::any_of(ranks.begin(), ranks.end(), [&](const ClassPeak& rank) { return rank.each[what] > 0; }))
      used.push_back(what);
  }
  return used;
}

std::string bytes_json(const MemoryBytes& bytes) {
  std::string text;
  for (std::size_t c = 0; c < num_memory_classes; ++c) {
    const auto what = static_cast<MemoryClass>(c);
    std::string key(to_string(what));
    std::replace(key.begin(), key.end(), ' ', '_');
    text += fmt::format("{}\"{}\":{}", c == 0 ? "" : ",", key, bytes[what]);
  }
  return "{" + text + "}";
}

std::string ranks_json(const std::vector<ClassPeak>& ranks) {
  std::string text;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    text += fmt::format(R"({}{{"rank":{},"peak_bytes":{},"at_us":{},"live_bytes":{},"peak_of_each_bytes":{}}})",
                        r == 0 ? "" : ",", r, ranks[r].bytes(), to_us(ranks[r].at), bytes_json(ranks[r].live),
                        bytes_json(ranks[r].each));
  }
  return "[" + text + "]";
}

// "--recompute selective --sharding optimizer", the first that fits of what keeps less; empty: none.
std::string what_fits(const Options& options, const DepthMap& depth, const StepMemory& memory, double usable) {
  std::vector<RecomputeRow> rows = memory.recomputes;
  const std::string now = options.recompute.value_or("none");
  if (rows.empty()) rows.push_back({now, SimTime(0), memory.ranks});
  for (const RecomputeRow& row : rows) {
    const Options other = with_recompute(options, row.name);
    const std::vector<std::int64_t> there = static_bytes(other, depth, resolve_sharding(options));
    for (const Sharding sharding : shardings) {
      if (sharding < resolve_sharding(options)) continue;
      const std::vector<std::int64_t> instead = static_bytes(other, depth, sharding);
      bool fits = true;
      for (std::size_t r = 0; r < row.ranks.size(); ++r)
        fits = fits && static_cast<double>(row.ranks[r].bytes() - there[r] + instead[r]) <= usable;
      if (!fits) continue;
      std::string flags = row.name == now ? "" : "--recompute " + row.name;
      if (sharding != resolve_sharding(options))
        flags += fmt::format("{}--sharding {}", flags.empty() ? "" : " ", to_string(sharding));
      return flags;
    }
  }
  return "";
}

// What is told of a device that does not hold what it must; empty: all do.
std::string memory_lack(const Options& options, const Depth& depth, const StepMemory& memory) {
  const Gpu gpu = load_cluster(*options.cluster).cluster.gpu;
  const double usable = usable_bytes(gpu);
  const std::size_t rank = fullest(memory.ranks);
  const MemoryBytes& live = memory.ranks[rank].live;
  const double excess = static_cast<double>(live.total()) - usable;
  if (excess <= 0) return "";
  auto most = MemoryClass::weights;
  for (std::size_t c = 1; c < num_memory_classes; ++c) {
    if (live[static_cast<MemoryClass>(c)] > live[most]) most = static_cast<MemoryClass>(c);
  }
  const std::string fits = what_fits(options, depth.map, memory, usable);
  return fmt::format("a device of rank {} needs {} at its peak, {} more than {} has to use; {} of it are {}: {}", rank,
                     bytes_text(static_cast<double>(live.total())), bytes_text(excess), gpu.name,
                     bytes_text(static_cast<double>(live[most])), to_string(most),
                     fits.empty() ? "raise --tp, --ep or --pp" : fits + " would fit");
}

}  // namespace

bool knows_memory(const Options& options) { return options.cluster && !options.profile && options.model; }

DeviceBytes device_bytes(const Options& options, const DepthMap& depth, const UnitBytes& bytes) {
  const ModelShape shape = load_shape(*options.model);
  const Batch batch = resolve_batch(options, depth);
  const std::int64_t tp = batch.degrees.tp;
  const auto part = [&](std::int64_t unit) { return (unit + tp - 1) / tp; };
  DeviceBytes device{.unit = {part(bytes.value), part(bytes.gradient_wire), part(bytes.gradient_slot)},
                     .activations = {},
                     .always = {}};
  for (const DeviceMemory& chunk : device_memory(shape, depth.cuts(), batch))
    device.activations.push_back(whole(chunk.activation_bytes));
  for (const Footprint& rank :
       footprints(shape, depth.cuts(), resolve_layout(options), batch, resolve_sharding(options))) {
    MemoryBytes& always = device.always.emplace_back();
    always[MemoryClass::weights] = whole(rank.weights_bytes);
    always[MemoryClass::gradients] = whole(rank.gradients_bytes);
    always[MemoryClass::optimizer] = whole(rank.optimizer_bytes);
    always[MemoryClass::workspace] = whole(rank.workspace_bytes);
  }
  return device;
}

StepMemory step_memory(const Options& options, const Schedule& schedule, const Depth& depth, const UnitBytes& bytes,
                       const std::optional<NetworkModel>& network, const Program& program, const Timeline& timeline) {
  StepMemory memory;
  memory.device = device_bytes(options, depth.map, bytes);
  memory.ranks = class_peaks(program, timeline, memory.device);
  const bool few = program.messages.size() <= most_messages;
  for (std::size_t r = 0; few && r < std::size(recompute_names); ++r) {
    const char* name = recompute_names[r];
    RecomputeRow& row = memory.recomputes.emplace_back();
    row.name = name;
    if (name == options.recompute.value_or("none")) {
      row.step = timeline.step;
      row.ranks = memory.ranks;
    } else {
      row.ranks = peaks_with(with_recompute(options, name), schedule, depth, bytes, network, row.step);
    }
  }
  memory.lack = memory_lack(options, depth, memory);
  return memory;
}

std::string memory_text(const Options& options, const StepMemory& memory) {
  const Gpu gpu = load_cluster(*options.cluster).cluster.gpu;
  const std::vector<MemoryClass> classes = used_classes(memory.ranks);
  std::vector<std::string> header{"rank"};
  for (const MemoryClass what : classes)
    header.emplace_back(to_string(what));
  header.insert(header.end(), {"peak", "at ms"});
  Table table(std::move(header));
  for (std::size_t r = 0; r < memory.ranks.size(); ++r) {
    std::vector<std::string> row{fmt::to_string(r)};
    for (const MemoryClass what : classes)
      row.push_back(gib_text(memory.ranks[r].live[what]));
    row.push_back(gib_text(memory.ranks[r].bytes()));
    row.push_back(milliseconds(memory.ranks[r].at));
    table.add(std::move(row));
  }
  std::string text = memory.lack.empty() ? "" : fmt::format("DOES NOT FIT: {}\n", memory.lack);
  text +=
      fmt::format("GiB of a device when it holds most, of {:.1f} that {} has to use; sharding {}, recomputation {}\n{}",
                  usable_bytes(gpu) / bytes_per_gib, gpu.name, to_string(resolve_sharding(options)),
                  options.recompute.value_or("none"), table.text());
  if (memory.recomputes.empty()) return text;
  Table compared({"recomputation", "pipeline ms", "GiB at the peak", "of rank", "activations", "everything else"});
  for (const RecomputeRow& row : memory.recomputes) {
    const std::size_t rank = fullest(row.ranks);
    const MemoryBytes& live = row.ranks[rank].live;
    compared.add({row.name, milliseconds(row.step), gib_text(live.total()), fmt::to_string(rank),
                  gib_text(live[MemoryClass::activations]), gib_text(live.total() - live[MemoryClass::activations])});
  }
  return text + "\n" + compared.text();
}

std::string memory_json(const Options& options, const StepMemory& memory) {
  const double usable = usable_bytes(load_cluster(*options.cluster).cluster.gpu);
  std::string compared;
  for (const RecomputeRow& row : memory.recomputes) {
    const std::size_t rank = fullest(row.ranks);
    compared += fmt::format(R"({}{{"recompute":"{}","step_us":{},"rank":{},"peak_bytes":{},"live_bytes":{}}})",
                            compared.empty() ? "" : ",", row.name, to_us(row.step), rank, row.ranks[rank].bytes(),
                            bytes_json(row.ranks[rank].live));
  }
  return fmt::format(R"({{"sharding":"{}","usable_bytes":{},"fits":{},"lack":{},"ranks":{},"recompute":[{}]}})",
                     to_string(resolve_sharding(options)), static_cast<std::int64_t>(usable), memory.lack.empty(),
                     memory.lack.empty() ? "null" : json_quoted(memory.lack), ranks_json(memory.ranks), compared);
}

}  // namespace plumb::cli

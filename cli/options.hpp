// SPDX-License-Identifier: Apache-2.0
//
// options.hpp (private): what a user typed, one field per flag, nothing resolved yet.
//
// parse.cpp fills it and is the only file that knows CLI11; resolve.hpp turns it into layouts and schedules.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace plumb::cli {

// plumb size: what is given, and which choices are settled beforehand (an empty list leaves one open).
struct SizeFlags {
  int gpus = 0;
  std::optional<std::int64_t> global_batch;  // [gpus]
  std::optional<double> memory_limit_gib;    // [what the cluster says is to use]
  std::vector<int> pp, vp, tp, ep, dp, microbatch;
  std::vector<std::string> schedules, policies, recomputes, shardings;
  std::string state;
  std::optional<int> threads;  // [all cores]
};

struct ScheduleFile;

struct Options {
  std::string subcommand;

  // Layout and depth.
  int pp = 1;
  int vp = 1;
  std::optional<int> microbatches;
  std::optional<std::string> placement;
  std::optional<std::string> model;
  std::optional<int> sublayers;
  std::optional<int> block;
  std::optional<int> layers;
  std::optional<int> block_layers;
  std::string cuts = "even";
  std::optional<std::string> layout;  // Megatron's layout string; apply_layout turns it into vp, cuts and layers
  std::optional<std::string> residual;

  // Order and routing.
  std::optional<std::string> schedule;
  std::shared_ptr<const ScheduleFile> schedule_file;  // if that names one; read by apply_schedule_file
  std::optional<int> group;
  std::optional<std::string> group_rule;  // [megatron]
  std::optional<std::string> cache;       // [cached]
  int post_ahead = 1;

  // Sizes.
  std::optional<int> hidden;
  int tokens = 4096;
  std::string dtype = "bf16";
  std::string grad_wire = "fp32";
  bool json = false;

  // plan, check.
  std::string format = "text";
  std::string output;
  std::optional<std::string> compare;
  std::optional<std::string> compare_residual;  // volume, sim
  std::string file;
  std::optional<std::string> channels;
  bool shared_fifo = false;
  bool legacy = false;

  // Costs.
  std::string action_us;
  std::optional<std::string> costs;  // "model": per chunk, instead of action_us
  std::optional<double> teraflops;   // [400]
  std::optional<std::string> cluster;
  std::optional<int> tp;  // [1], with cluster or profile only
  std::optional<int> ep;
  std::optional<int> dp;
  std::optional<int> sequence;           // [tokens]
  std::optional<std::string> recompute;  // [none]
  std::optional<std::string> sharding;   // [none]
  bool show_cluster = false;
  std::optional<std::string> profile;
  std::optional<int> memory_chunks;  // auto only
  std::optional<double> hop_us;      // sim: [200]
  std::optional<std::string> hop_gbps;
  std::optional<double> unit_us;

  // sim.
  std::string trace;
  std::string html;
  std::string against;
  bool compare_cache = false;
  bool what_if = false;
  bool single_stream = false;
  std::optional<std::string> sharing;       // [exclusive; fair with --streams]
  std::optional<std::string> streams;       // [unordered]
  std::optional<std::int64_t> eager_bytes;  // [0]
  std::optional<double> launch_us;          // [0]
  std::optional<double> comm_share;         // [0]

  // rehearse.
  std::int64_t unit_bytes = 65536;
  std::optional<std::string> ranks;  // [mpi under mpirun, else inproc]
  int steps = 5;
  std::string log;
  std::string links = "emulated";
  std::optional<std::string> impair;  // [none]

  SizeFlags size;

  // Handed to a sibling program as they are.
  std::vector<std::string> rest;
};

enum class Parsed { run, done };

// Throws UsageError. `done`: help or version was printed.
Parsed parse(int argc, char** argv, Options& options);

}  // namespace plumb::cli

// SPDX-License-Identifier: Apache-2.0
//
// network_model.hpp: what messages travel through, as plain data.
//
// Tiers lie innermost first; two ranks talk through the first tier in which they are in the same group. There a
// message takes the sender's egress, the sender's way up, the receiver's way down and the receiver's ingress: resources
// of a capacity that all messages on them share fairly. Several ranks may name the same resource (a card shared by two
// ranks, the uplink of a rack), the same resource may stand in several tiers, and one named as egress and ingress is
// half-duplex. A cluster file becomes one of these; the engine that runs it is network.hpp. Bytes per second and
// direction, efficiencies already taken off.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "plumb/schedule/ids.hpp"
#include "plumb/simulator/sim_time.hpp"

namespace plumb {

using ResourceId = Id<struct NetworkResourceTag>;  // index into NetworkModel::resources

inline constexpr ResourceId no_resource{-1};  // takes any number of messages at once
inline constexpr double max_bytes_per_s = 8e12;
inline constexpr double max_compute_share = 0.95;

struct NetworkResource {
  std::string name;                                              // "rank 3 egress", "rack 1 up"
  double bytes_per_s = std::numeric_limits<double>::infinity();  // infinity = never shared; else 1..max_bytes_per_s
};

struct NetworkTier {
  std::string name;
  SimTime latency{0};
  std::vector<std::int32_t> group;      // [rank] ranks with the same number can talk through this tier
  std::vector<ResourceId> egress;       // [rank]; empty: unlimited
  std::vector<ResourceId> ingress;      // [rank]; empty: unlimited
  std::vector<ResourceId> uplink_up;    // [rank]; empty: none
  std::vector<ResourceId> uplink_down;  // [rank]; empty: none
};

// How the two ends of a message move it.
struct MessageProtocol {
  // At most that many bytes: eager, the message leaves when it is sent, whether or not its receive is there. More:
  // rendezvous, both ends are held until it is through.
  std::int64_t eager_limit_bytes = 0;
  SimTime launch{0};  // from the moment an operation may begin on its stream until it does
  // By how much a rank computes more slowly while it moves at least one message, and while it only waits for the other
  // end of one: 0..max_compute_share of its speed. Needs streams: without them nothing of the rank is busy.
  double compute_share_while_active = 0;
  double compute_share_while_waiting = 0;
};

// Which operations of a rank go one after the other, in program order. Each holds its stream from when it may begin
// until the message is through.
enum class CommStreams : std::uint8_t {
  unordered,      // none: every message goes as soon as both ends are ready, as with cards that need no kernel
  single,         // one stream per rank
  per_direction,  // four: activations out, activations in, gradients out, gradients in
  batched         // one stream of groups of at most one operation of each of those kinds; a group ends together
};

// Machines whose ranks share the cores: of k ranks of a machine that compute at the same time each has the speed of
// cores / k, but no more than 1.
struct SharedCores {
  std::vector<std::int32_t> machine;  // [rank]; empty: each rank has a core of its own
  int cores = 1;                      // of every machine
};

struct NetworkModel {
  std::vector<NetworkResource> resources;
  std::vector<NetworkTier> tiers;  // innermost first; the last must hold all ranks in one group
  MessageProtocol protocol;
  CommStreams streams = CommStreams::unordered;
  std::vector<double> compute_scale;  // [rank] 1.1: its computations take 1.1 times as long; empty: all 1
  SharedCores shared_cores;
};

// Whether some machine has more ranks than cores, so that ranks may slow each other down.
bool cores_are_scarce(const SharedCores& shared);

// One card per rank, full-duplex, of so many bytes per second (infinity: messages occupy nothing), one tier.
NetworkModel uniform_network(int num_ranks, double bytes_per_s, SimTime latency);

// Throws InputError naming the first fault: no tier, a tier without all ranks, a resource that is not there, a capacity
// or a share out of range.
void require_sound(const NetworkModel& network, int num_ranks);

}  // namespace plumb

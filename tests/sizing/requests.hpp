// SPDX-License-Identifier: Apache-2.0
//
// requests.hpp: small requests to size, and what must be the same of two answers.
#pragma once

#include <string>
#include <vector>

#include "plumb/sizing/search.hpp"
#include "support/catch.hpp"

namespace plumb::test {

// A small model with every kind of layer.
inline ModelShape small_model(int layers) {
  ModelShape shape;
  shape.name = "small";
  shape.hidden = 512;
  shape.vocabulary = 4096;
  shape.depth_attention = true;
  for (int layer = 0; layer < layers; ++layer)
    shape.layers.push_back({.linear_attention = layer % 3 != 2, .experts = layer > 0});
  shape.attention = GroupedAttention{.heads = 8, .key_value_heads = 8, .head_width = 64};
  shape.delta = {.key_heads = 8, .value_heads = 8, .key_width = 64, .value_width = 64, .decay_entries = 8};
  shape.mlp = {.width = 2048};
  shape.experts = {.count = 8, .per_token = 2, .width = 512};
  return shape;
}

inline Cluster small_cluster(std::int64_t span) {
  Cluster cluster = *cluster_preset("h100");
  cluster.tiers.front().span_gpus = span;
  return cluster;
}

inline SizeRequest small_request() {
  SizeRequest request;
  request.shape = small_model(6);
  request.block_sublayers = 4;
  request.cluster = small_cluster(2);
  request.gpus = 4;
  request.global_batch = 8;
  request.sequence = 1024;
  request.memory_bytes = 4e9;
  request.settled.recomputes = {Recompute::none};
  request.settled.microbatch = {1};
  return request;
}

inline std::vector<std::string> names_of(const std::vector<Evaluated>& all) {
  std::vector<std::string> names;
  for (const Evaluated& one : all)
    names.push_back(to_string(one.candidate));
  return names;
}

inline void require_same(const SearchResult& a, const SearchResult& b) {
  for (const auto list :
       {&SearchResult::best, &SearchResult::pareto, &SearchResult::by_schedule, &SearchResult::by_policy}) {
    CHECK(names_of(a.*list) == names_of(b.*list));
    REQUIRE((a.*list).size() == (b.*list).size());
    for (std::size_t i = 0; i < (a.*list).size(); ++i)
      CHECK((a.*list)[i].outcome == (b.*list)[i].outcome);
  }
}

}  // namespace plumb::test

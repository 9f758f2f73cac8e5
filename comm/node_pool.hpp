// SPDX-License-Identifier: Apache-2.0
// node_pool.hpp: nodes with stable addresses that are handed out again and again.
//
// The most recently returned node goes out first, so the numbers of the nodes in use stay small. Nothing is freed
// before the pool. One thread takes and gives; others may read a node that they were handed. Private to comm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace plumb::comm {

/// Node needs `Node* next` and is default-constructible; `std::uint32_t number` counts from 0 in order of creation.
template <class Node>
class NodePool {
 public:
  void reserve(std::size_t num_nodes) {
    // Free nodes are pushed in reverse so that the lowest number is the next to go out.
    const std::size_t old_size = nodes_.size();
    while (nodes_.size() < num_nodes) {
      const std::size_t number = nodes_.size();
      nodes_.emplace_back().number = static_cast<std::uint32_t>(number);
    }
    for (std::size_t i = nodes_.size(); i > old_size; --i)
      give(nodes_[i - 1]);
  }

  Node& take() {
    if (free_ == nullptr) reserve(nodes_.size() + 1);
    Node& node = *free_;
    free_ = node.next;
    node.next = nullptr;
    return node;
  }

  void give(Node& node) noexcept {
    node.next = free_;
    free_ = &node;
  }

  Node& operator[](std::uint32_t number) noexcept { return nodes_[number]; }

 private:
  std::deque<Node> nodes_;
  Node* free_ = nullptr;
};

}  // namespace plumb::comm

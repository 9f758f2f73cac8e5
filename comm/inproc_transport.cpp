// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "backoff.hpp"
#include "control_check.hpp"
#include "inproc_state.hpp"
#include "node_pool.hpp"
#include "post_check.hpp"

namespace plumb::comm {
namespace {

/// The other side wakes a sleeper, so sleeping early costs a few microseconds only.
constexpr BackoffPolicy woken_policy{.yield_limit = std::chrono::microseconds(100), .looks_per_yield = 1};

class InprocTransport final : public Transport {
 public:
  InprocTransport(std::shared_ptr<InprocState> state, PeerId rank)
      : state_(std::move(state)), me_(state_->at(rank)), rank_(rank), backoff_(state_->size, woken_policy) {
    counters_.by_peer.resize(static_cast<std::size_t>(state_->size));
  }

  ~InprocTransport() override { leave(); }

  PeerId rank() const noexcept override { return rank_; }
  std::int32_t size() const noexcept override { return state_->size; }
  const Counters& counters() const noexcept override { return counters_; }
  void notify() noexcept override { me_.event.set(); }

  void reserve(std::size_t num_messages, std::size_t num_segments) override {
    const IssuingGuard guard(inside_, rank_);
    posts_.reserve(num_messages);
    segments_.reserve(num_segments);
  }

  Ticket post_send(PeerId to, Lane lane, std::span<const ConstSegment> segments) override {
    const IssuingGuard guard(inside_, rank_);
    check_post(rank_, state_->size, to, segments);
    return start(to, lane, true, segments, state_->channel(rank_, to, lane));
  }

  Ticket post_receive(PeerId from, Lane lane, std::span<const Segment> segments) override {
    const IssuingGuard guard(inside_, rank_);
    check_post(rank_, state_->size, from, segments);
    return start(from, lane, false, segments, state_->channel(from, rank_, lane));
  }

  std::size_t progress(std::span<Ticket> completed) override {
    const IssuingGuard guard(inside_, rank_);
    throw_if_failed();
    std::size_t num_completed = 0;
    while (num_completed < completed.size()) {
      if (ready_ == nullptr) ready_ = take_finished();
      if (ready_ == nullptr) break;
      InprocPost& post = *ready_;
      ready_ = post.next;
      count(post);
      completed[num_completed++] = Ticket{post.number};
      recycle(post);
    }
    if (num_completed > 0) backoff_.activity();
    return num_completed;
  }

  void wait(std::chrono::nanoseconds limit) override {
    const IssuingGuard guard(inside_, rank_);
    if (ready_ != nullptr) return;
    const auto start = Backoff::Clock::now();
    const auto deadline = start + std::min(limit, longest_wait);
    for (auto now = start;; now = Backoff::Clock::now()) {
      if (me_.event.consume() || me_.finished.load(std::memory_order_relaxed) != nullptr) break;
      if (now >= deadline || state_->has_failed()) break;
      switch (backoff_.next(now)) {
        case Pause::none:
          break;
        case Pause::yield:
          std::this_thread::yield();
          break;
        case Pause::sleep:
          me_.event.sleep(deadline - now);
          break;
      }
    }
    throw_if_failed();
  }

  void fail(std::string_view reason) noexcept override {
    const IssuingGuard guard(inside_, rank_);
    report_failure(reason);
    revoke();
  }

 private:
  template <class AnySegment>
  Ticket start(PeerId peer, Lane lane, bool is_send, std::span<const AnySegment> segments, InprocChannel& channel) {
    throw_if_failed();
    InprocPost& mine = make_post(peer, lane, is_send, segments);
    InprocPost* other = nullptr;
    bool peer_left = false;
    {
      const std::lock_guard lock(channel.mutex);
      peer_left = state_->at(peer).left.load(std::memory_order_relaxed);
      if (!peer_left) {
        if (channel.head != nullptr && channel.head->is_send != is_send) {
          other = channel.head;
          channel.head = other->next;
        } else {
          (channel.head == nullptr ? channel.head : channel.tail->next) = &mine;
          channel.tail = &mine;
        }
      }
    }
    const Ticket ticket{mine.number};
    if (peer_left) {
      recycle(mine);
      throw_left(peer, lane);
    }
    backoff_.activity();
    ++num_pending_;
    if (other != nullptr) transfer(is_send ? mine : *other, is_send ? *other : mine);
    return ticket;
  }

  template <class AnySegment>
  InprocPost& make_post(PeerId peer, Lane lane, bool is_send, std::span<const AnySegment> segments) {
    InprocPost& post = posts_.take();
    post.peer = peer;
    post.lane = lane;
    post.is_send = is_send;
    post.segments = nullptr;
    post.moved_bytes = 0;
    for (std::size_t i = segments.size(); i > 0; --i) {
      InprocSegment& node = segments_.take();
      node.segment = {const_cast<std::byte*>(segments[i - 1].data), segments[i - 1].size_bytes};
      node.next = post.segments;
      post.segments = &node;
    }
    return post;
  }

  void recycle(InprocPost& post) noexcept {
    while (post.segments != nullptr) {
      InprocSegment& node = *post.segments;
      post.segments = node.next;
      segments_.give(node);
    }
    posts_.give(post);
  }

  /// Both posts are in this thread's hands: one is ours, the other was taken from its channel.
  void transfer(InprocPost& send, InprocPost& receive) {
    if (sizes_agree(send, receive)) {
      const InprocSegment* from = send.segments;
      for (const InprocSegment* to = receive.segments; to != nullptr; to = to->next, from = from->next) {
        std::memcpy(to->segment.data, from->segment.data, to->segment.size_bytes);
        receive.moved_bytes += to->segment.size_bytes;
      }
      send.moved_bytes = receive.moved_bytes;
    }
    const PeerId sender = receive.peer;  // read now: a post handed back is its owner's, who may use it again at once
    const PeerId receiver = send.peer;
    hand_back(send, sender);
    hand_back(receive, receiver);
  }

  /// On a difference the job has failed, with the receiver as the rank that noticed, whichever thread this is.
  bool sizes_agree(const InprocPost& send, const InprocPost& receive) {
    const InprocSegment* from = send.segments;
    const InprocSegment* to = receive.segments;
    std::size_t index = 0;
    for (; from != nullptr && to != nullptr && from->segment.size_bytes == to->segment.size_bytes; ++index) {
      from = from->next;
      to = to->next;
    }
    if (from == nullptr && to == nullptr) return true;
    TransportFault fault;
    fault.kind = TransportErrorKind::protocol;
    fault.rank = send.peer;
    fault.peer = receive.peer;
    fault.lane = send.lane;
    fault.expected_bytes = to == nullptr ? 0 : to->segment.size_bytes;
    fault.got_bytes = from == nullptr ? 0 : from->segment.size_bytes;
    fault.text = fmt::format("segment {} has {} bytes, expected {}", index, fault.got_bytes, fault.expected_bytes);
    state_->fail(std::move(fault));
    return false;
  }

  void hand_back(InprocPost& post, PeerId owner) noexcept {
    InprocRank& rank = state_->at(owner);
    InprocPost* top = rank.finished.load(std::memory_order_relaxed);
    do {
      post.next = top;
    } while (!rank.finished.compare_exchange_weak(top, &post, std::memory_order_release, std::memory_order_relaxed));
    if (owner != rank_) rank.event.set();
  }

  /// The finished posts, oldest first.
  InprocPost* take_finished() noexcept {
    InprocPost* post = me_.finished.exchange(nullptr, std::memory_order_acquire);
    InprocPost* oldest_first = nullptr;
    while (post != nullptr) {
      --num_pending_;
      InprocPost* older = post->next;
      post->next = oldest_first;
      oldest_first = post;
      post = older;
    }
    return oldest_first;
  }

  void count(const InprocPost& post) noexcept {
    auto& lane = counters_.by_peer[static_cast<std::size_t>(post.peer.value)][static_cast<std::size_t>(post.lane)];
    for (ChannelCounters* counters : {&counters_.total, &lane}) {
      (post.is_send ? counters->bytes_sent : counters->bytes_received) += post.moved_bytes;
      ++(post.is_send ? counters->messages_sent : counters->messages_received);
    }
  }

  void throw_if_failed() const {
    if (state_->has_failed()) throw TransportError(state_->failure_seen_by(rank_));
  }

  [[noreturn]] void throw_left(PeerId peer, Lane lane) const {
    TransportFault fault;
    fault.kind = TransportErrorKind::peer;
    fault.rank = rank_;
    fault.peer = peer;
    fault.lane = lane;
    fault.text = fmt::format("rank {} has left, a message with it can never finish", peer.value);
    throw TransportError(std::move(fault));
  }

  void report_failure(std::string_view reason) noexcept {
    TransportFault fault;
    fault.kind = TransportErrorKind::peer;
    fault.rank = rank_;
    fault.text = std::string(reason);
    state_->fail(std::move(fault));
  }

  /// Takes this rank's posts out of every channel and waits for those being copied, at most one copy per channel.
  void revoke() noexcept {
    for (std::int32_t i = 0; i < state_->size; ++i) {
      for (const Lane lane : {Lane::urgent, Lane::bulk}) {
        revoke(state_->channel(rank_, PeerId{i}, lane), true);
        revoke(state_->channel(PeerId{i}, rank_, lane), false);
      }
    }
    InprocPost* ready = std::exchange(ready_, nullptr);
    for (;;) {
      while (ready != nullptr)
        recycle(*std::exchange(ready, ready->next));
      if (num_pending_ == 0) return;
      std::this_thread::yield();
      ready = take_finished();
    }
  }

  void revoke(InprocChannel& channel, bool is_send) noexcept {
    const std::lock_guard lock(channel.mutex);
    if (channel.head == nullptr || channel.head->is_send != is_send) return;
    while (channel.head != nullptr) {
      recycle(*std::exchange(channel.head, channel.head->next));
      --num_pending_;
    }
  }

  void leave() noexcept {
    for (InprocPost* post = take_finished(); post != nullptr;)
      recycle(*std::exchange(post, post->next));
    if (num_pending_ > 0) report_failure(fmt::format("it left with {} messages pending", num_pending_));
    me_.left.store(true, std::memory_order_relaxed);  // ordered by the channels' mutexes, see start()
    for (std::int32_t i = 0; i < state_->size; ++i) {
      for (const Lane lane : {Lane::urgent, Lane::bulk}) {
        check_nobody_waits(state_->channel(rank_, PeerId{i}, lane), false);
        check_nobody_waits(state_->channel(PeerId{i}, rank_, lane), true);
      }
    }
    { const std::lock_guard lock(state_->exchange.mutex); }  // whoever waits there sees `left` or hears the next line
    state_->exchange.changed.notify_all();
    revoke();
  }

  /// A peer's post that waits for this leaving rank would wait for ever.
  void check_nobody_waits(InprocChannel& channel, bool peers_post_is_send) noexcept {
    const std::lock_guard lock(channel.mutex);
    if (channel.head != nullptr && channel.head->is_send == peers_post_is_send) {
      report_failure("it left while a message with it was pending");
    }
  }

  std::shared_ptr<InprocState> state_;
  InprocRank& me_;
  PeerId rank_;
  std::atomic<bool> inside_{false};
  NodePool<InprocPost> posts_;
  NodePool<InprocSegment> segments_;
  InprocPost* ready_ = nullptr;  ///< finished, oldest first, not yet handed out
  std::size_t num_pending_ = 0;  ///< posts that are not ours yet: in a channel, being copied, or not yet taken back
  Counters counters_;
  Backoff backoff_;
};

}  // namespace

std::unique_ptr<Transport> make_inproc_transport(std::shared_ptr<InprocState> state, PeerId rank) {
  return std::make_unique<InprocTransport>(std::move(state), rank);
}

}  // namespace plumb::comm

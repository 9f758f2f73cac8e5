// SPDX-License-Identifier: Apache-2.0
#include "mpi_transport.hpp"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "control_check.hpp"
#include "post_check.hpp"

namespace plumb::comm {
namespace {

constexpr Lane lanes[] = {Lane::urgent, Lane::bulk};

std::size_t index_of(PeerId peer) { return static_cast<std::size_t>(peer.value); }
std::size_t index_of(Lane lane) { return static_cast<std::size_t>(lane); }
int tag_of(Lane lane) { return static_cast<int>(lane); }

}  // namespace

MpiTransport::MpiTransport(MpiJob& job) : job_(job), backoff_(job.num_local_ranks(), looking_policy) {
  posted_.resize(static_cast<std::size_t>(job.size()));
  counters_.by_peer.resize(static_cast<std::size_t>(job.size()));
  queues_.resize(static_cast<std::size_t>(job.size()));
}

void MpiTransport::reserve(std::size_t num_messages, std::size_t num_segments) {
  const IssuingGuard guard(job_.inside(), rank());
  messages_.reserve(num_messages);
  waiting_.reserve(num_segments);
  pieces_.reserve(num_segments);
  requests_.reserve(num_segments + 1);  // and the next note
  done_.reserve(num_segments + 1);
  statuses_.reserve(num_segments + 1);
}

Ticket MpiTransport::post_send(PeerId to, Lane lane, std::span<const ConstSegment> segments) {
  const IssuingGuard guard(job_.inside(), rank());
  check_post(rank(), size(), to, segments);
  return post(to, lane, true, segments, [this](const Piece& piece, const std::byte* data) { send_piece(piece, data); });
}

Ticket MpiTransport::post_receive(PeerId from, Lane lane, std::span<const Segment> segments) {
  const IssuingGuard guard(job_.inside(), rank());
  check_post(rank(), size(), from, segments);
  return post(from, lane, false, segments, [this](const Piece& piece, std::byte* data) { receive_piece(piece, data); });
}

template <class AnySegment, class Start>
Ticket MpiTransport::post(PeerId peer, Lane lane, bool is_send, std::span<const AnySegment> segments, Start start) {
  job_.throw_if_failed();
  Message& message = messages_.take();
  message.peer = peer;
  message.lane = lane;
  message.is_send = is_send;
  message.num_open_pieces = 0;
  message.moved_bytes = 0;
  PostedCounts& posted = posted_[index_of(peer)][index_of(lane)];
  ++(is_send ? posted.sends : posted.receives);
  if (job_.left(peer) != nullptr) check_left(peer);
  for (const AnySegment& segment : segments) {
    for (std::size_t offset = 0; offset < segment.size_bytes;) {
      const std::size_t size_bytes = std::min(segment.size_bytes - offset, job_.options().max_piece_bytes);
      ++message.num_open_pieces;
      start(Piece{&message, size_bytes}, segment.data + offset);
      offset += size_bytes;
    }
  }
  backoff_.activity();
  return Ticket{message.number};
}

void MpiTransport::send_piece(const Piece& piece, const std::byte* data) {
  const Message& message = *piece.message;
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Isend(data, static_cast<int>(piece.size_bytes), MPI_BYTE, message.peer.value,
                             tag_of(message.lane), job_.communicator(), &request);
  if (code != MPI_SUCCESS) fail_and_throw(job_.net_fault(code, "MPI_Isend"));
  requests_.push_back(request);
  pieces_.push_back(piece);
}

void MpiTransport::receive_piece(const Piece& piece, std::byte* data) {
  WaitingQueue& queue = queues_[index_of(piece.message->peer)][index_of(piece.message->lane)];
  if (queue.head == nullptr && piece.size_bytes < job_.options().probe_from_bytes) return start_receive(piece, data);
  Waiting& waiting = waiting_.take();
  waiting.piece = piece;
  waiting.data = data;
  (queue.head == nullptr ? queue.head : queue.tail->next) = &waiting;
  queue.tail = &waiting;
  ++num_waiting_;
}

void MpiTransport::start_receive(const Piece& piece, std::byte* data) {
  const Message& message = *piece.message;
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Irecv(data, static_cast<int>(piece.size_bytes), MPI_BYTE, message.peer.value,
                             tag_of(message.lane), job_.communicator(), &request);
  if (code != MPI_SUCCESS) fail_and_throw(job_.net_fault(code, "MPI_Irecv"));
  requests_.push_back(request);
  pieces_.push_back(piece);
}

void MpiTransport::match_waiting(PeerId from, Lane lane) {
  WaitingQueue& queue = queues_[index_of(from)][index_of(lane)];
  while (queue.head != nullptr) {
    Waiting& waiting = *queue.head;
    if (waiting.piece.size_bytes < job_.options().probe_from_bytes) {
      start_receive(waiting.piece, waiting.data);
    } else if (!match_large(waiting)) {
      return;
    }
    queue.head = waiting.next;
    waiting_.give(waiting);
    --num_waiting_;
  }
}

bool MpiTransport::match_large(const Waiting& waiting) {
  const Message& message = *waiting.piece.message;
  int there = 0;
  MPI_Message arrived = MPI_MESSAGE_NULL;
  MPI_Status status;
  job_.check(MPI_Improbe(message.peer.value, tag_of(message.lane), job_.communicator(), &there, &arrived, &status),
             "MPI_Improbe");
  if (there == 0) return false;
  int arrived_bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &arrived_bytes);
  if (static_cast<std::size_t>(arrived_bytes) != waiting.piece.size_bytes) {
    swallow(arrived, arrived_bytes);
    fail_and_throw(size_fault(message, waiting.piece.size_bytes, static_cast<std::size_t>(arrived_bytes)));
  }
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Imrecv(waiting.data, arrived_bytes, MPI_BYTE, &arrived, &request);
  if (code != MPI_SUCCESS) fail_and_throw(job_.net_fault(code, "MPI_Imrecv"));
  requests_.push_back(request);
  pieces_.push_back(waiting.piece);
  return true;
}

void MpiTransport::forget_waiting() {
  for (auto& lanes_of_peer : queues_) {
    for (WaitingQueue& queue : lanes_of_peer) {
      while (queue.head != nullptr)
        waiting_.give(*std::exchange(queue.head, queue.head->next));
    }
  }
  num_waiting_ = 0;
}

std::size_t MpiTransport::progress(std::span<Ticket> completed) {
  const IssuingGuard guard(job_.inside(), rank());
  job_.throw_if_failed();
  if (ready_ == nullptr) advance();  // what wait() has found needs no other look
  std::size_t num_completed = 0;
  for (; num_completed < completed.size() && ready_ != nullptr; ++num_completed) {
    Message& message = *ready_;
    ready_ = message.next;
    count(message);
    completed[num_completed] = Ticket{message.number};
    messages_.give(message);
  }
  if (num_completed > 0) backoff_.activity();
  return num_completed;
}

void MpiTransport::wait(std::chrono::nanoseconds limit) {
  const IssuingGuard guard(job_.inside(), rank());
  if (ready_ != nullptr) return job_.throw_if_failed();
  const auto start = Backoff::Clock::now();
  const auto deadline = start + std::min(limit, longest_wait);
  for (auto now = start;; now = Backoff::Clock::now()) {
    advance();
    if (ready_ != nullptr || event_.consume() || now >= deadline) return;
    pause(now, deadline);
  }
}

void MpiTransport::pause(Backoff::Clock::time_point now, Backoff::Clock::time_point deadline) {
  constexpr std::chrono::nanoseconds longest_sleep = std::chrono::microseconds(50);  // nobody but MPI_Test moves MPI on
  switch (backoff_.next(now)) {
    case Pause::none:
      break;
    case Pause::yield:
      std::this_thread::yield();
      break;
    case Pause::sleep:
      event_.sleep(std::min<std::chrono::nanoseconds>(deadline - now, longest_sleep));
      break;
  }
}

void MpiTransport::advance() {
  job_.throw_if_failed();
  for (std::int32_t peer = 0; num_waiting_ > 0 && peer < size(); ++peer) {
    for (const Lane lane : lanes)
      match_waiting(PeerId{peer}, lane);
  }
  // One call for everything, the next note included: each call that finds nothing runs MPI's progress engine, and that
  // gives the core away when the machine is crowded.
  const std::size_t note_index = requests_.size();
  requests_.push_back(job_.note_request());
  done_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int num_done = 0;
  const int code =
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &num_done, done_.data(), statuses_.data());
  requests_.pop_back();
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) fail_and_throw(job_.net_fault(code, "MPI_Testsome"));
  if (num_done == MPI_UNDEFINED || num_done == 0) return;
  std::optional<TransportFault> fault;
  std::optional<MPI_Status> note;
  for (int i = 0; i < num_done; ++i) {
    const MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
    if (static_cast<std::size_t>(done_[static_cast<std::size_t>(i)]) == note_index) {
      note = status;
    } else {
      const int error = code == MPI_SUCCESS ? MPI_SUCCESS : status.MPI_ERROR;
      finish_piece(done_[static_cast<std::size_t>(i)], status, error, fault);
    }
  }
  drop_pieces(num_done, note_index);
  if (note) read_note(*note);
  if (fault) fail_and_throw(std::move(*fault));
}

void MpiTransport::read_note(const MPI_Status& status) {
  job_.note_arrived(status);
  job_.throw_if_failed();
  for (std::int32_t peer = 0; peer < size(); ++peer)
    check_left(PeerId{peer});
}

void MpiTransport::finish_piece(int index, const MPI_Status& status, int error, std::optional<TransportFault>& fault) {
  const Piece& piece = pieces_[static_cast<std::size_t>(index)];
  Message& message = *piece.message;
  std::size_t moved_bytes = piece.size_bytes;  // MPI reports no length for a send
  if (!message.is_send) {
    int arrived_bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &arrived_bytes);
    moved_bytes = static_cast<std::size_t>(arrived_bytes);
  }
  int error_class = MPI_SUCCESS;
  MPI_Error_class(error, &error_class);
  if (!fault && error_class == MPI_ERR_TRUNCATE) {
    fault = size_fault(message, piece.size_bytes, std::max(moved_bytes, piece.size_bytes + 1));
  } else if (!fault && error_class != MPI_SUCCESS) {
    fault = job_.net_fault(error, message.is_send ? "a send" : "a receive");
    fault->peer = message.peer;
    fault->lane = message.lane;
  } else if (!fault && moved_bytes != piece.size_bytes) {
    fault = size_fault(message, piece.size_bytes, moved_bytes);
  }
  message.moved_bytes += moved_bytes;
  if (--message.num_open_pieces > 0) return;
  message.next = nullptr;
  (ready_ == nullptr ? ready_ : last_ready_->next) = &message;
  last_ready_ = &message;
}

TransportFault MpiTransport::size_fault(const Message& message, std::size_t expected_bytes,
                                        std::size_t got_bytes) const {
  TransportFault fault;
  fault.kind = TransportErrorKind::protocol;
  fault.rank = rank();
  fault.peer = message.peer;
  fault.lane = message.lane;
  fault.expected_bytes = expected_bytes;
  fault.got_bytes = got_bytes;
  fault.text = fmt::format("a segment has {} bytes, expected {}", got_bytes, expected_bytes);
  return fault;
}

void MpiTransport::drop_pieces(int num_done, std::size_t note_index) {
  const auto end = std::remove(done_.begin(), done_.begin() + num_done, static_cast<int>(note_index));
  std::sort(done_.begin(), end, std::greater<>());  // the last one first: what moves into a gap is never done itself
  for (auto index = done_.begin(); index != end; ++index) {
    const auto gap = static_cast<std::size_t>(*index);
    requests_[gap] = requests_.back();
    pieces_[gap] = pieces_.back();
    requests_.pop_back();
    pieces_.pop_back();
  }
}

void MpiTransport::count(const Message& message) noexcept {
  for (ChannelCounters* c : {&counters_.total, &counters_.by_peer[index_of(message.peer)][index_of(message.lane)]}) {
    (message.is_send ? c->bytes_sent : c->bytes_received) += message.moved_bytes;
    ++(message.is_send ? c->messages_sent : c->messages_received);
  }
}

/// A peer that has left told how many messages it ever started; any beyond these can never finish.
void MpiTransport::check_left(PeerId peer) {
  const PostedToPeer* theirs = job_.left(peer);
  if (theirs == nullptr) return;
  for (const Lane lane : lanes) {
    const PostedCounts& mine = posted_[index_of(peer)][index_of(lane)];
    const PostedCounts& other = (*theirs)[index_of(lane)];
    if (mine.sends <= other.receives && mine.receives <= other.sends) continue;
    TransportFault fault;
    fault.kind = TransportErrorKind::peer;
    fault.rank = rank();
    fault.peer = peer;
    fault.lane = lane;
    fault.text = fmt::format("rank {} has left, a message with it can never finish", peer.value);
    fail_and_throw(std::move(fault));
  }
}

void MpiTransport::fail_and_throw(TransportFault fault) {
  job_.fail(fault);
  throw TransportError(std::move(fault));
}

void MpiTransport::record_failure(std::string_view reason) noexcept {
  try {
    TransportFault fault;
    fault.kind = TransportErrorKind::peer;
    fault.rank = rank();
    fault.text = std::string(reason);
    job_.fail(std::move(fault));
  } catch (const std::exception&) {
    job_.abort();  // cannot even tell the others
  }
}

void MpiTransport::fail(std::string_view reason) noexcept {
  const IssuingGuard guard(job_.inside(), rank());
  record_failure(reason);
  try {
    drain();
  } catch (const std::exception&) {
    drained_ = false;  // leave() will see that the job must be aborted
  }
}

bool MpiTransport::leave() noexcept {
  const IssuingGuard guard(job_.inside(), rank());
  try {
    if (!job_.has_failed()) {
      try {
        advance();
        const std::size_t num_open = requests_.size() + num_waiting_;
        if (num_open > 0) record_failure(fmt::format("it left with {} segments pending", num_open));
      } catch (const TransportError&) {
        // known to the job now; drained below
      }
    }
    if (!job_.has_failed() && await_others()) return true;
    if (drained_) return true;
    if (cancelled_ && !requests_.empty()) return false;
    return drain();
  } catch (const std::exception&) {
    return false;
  }
}

bool MpiTransport::await_others() {
  job_.tell_left(posted_);
  const auto deadline = Backoff::Clock::now() + std::min(job_.options().leave_limit, longest_wait);
  for (;;) {
    job_.poll();
    if (job_.has_failed()) return false;
    if (job_.all_left() && job_.texts_sent()) {
      swallow_unwanted();
      return true;
    }
    const auto now = Backoff::Clock::now();
    if (now >= deadline) {
      record_failure("it waited too long for the others to finish");
      return false;
    }
    event_.consume();
    pause(now, deadline);
  }
}

bool MpiTransport::drain() {
  if (drained_) return true;
  const auto deadline = Backoff::Clock::now() + std::min(job_.options().fail_limit, longest_wait);
  forget_waiting();
  for (std::size_t i = 0; !cancelled_ && i < requests_.size(); ++i) {
    if (!pieces_[i].message->is_send) MPI_Cancel(&requests_[i]);  // has no effect once the message has come
  }
  cancelled_ = true;
  for (;;) {
    job_.poll();
    swallow_unwanted();
    if (!requests_.empty()) {
      done_.resize(requests_.size());
      int num_done = 0;
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &num_done, done_.data(), MPI_STATUSES_IGNORE);
      if (num_done != MPI_UNDEFINED && num_done > 0) drop_pieces(num_done, requests_.size());
    }
    const bool quiet = requests_.empty() && unwanted_.empty() && job_.texts_sent();
    if (quiet && !std::exchange(told_drained_, true)) job_.tell_drained();
    if (quiet && job_.all_drained()) {
      swallow_unwanted();  // whatever came before the last note is here by now
      drained_ = unwanted_.empty();
      if (drained_) return true;
    }
    const auto now = Backoff::Clock::now();
    if (now >= deadline) return false;
    event_.consume();
    pause(now, deadline);
  }
}

void MpiTransport::swallow_unwanted() {
  for (const int tag : {tag_of(Lane::urgent), tag_of(Lane::bulk), text_tag}) {
    for (;;) {
      int there = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      job_.check(MPI_Improbe(MPI_ANY_SOURCE, tag, job_.communicator(), &there, &message, &status), "MPI_Improbe");
      if (there == 0) break;
      int size_bytes = 0;
      MPI_Get_count(&status, MPI_BYTE, &size_bytes);
      swallow(message, size_bytes);
    }
  }
  unwanted_.remove_if([](Unwanted& unwanted) {
    int done = 0;
    MPI_Test(&unwanted.request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

void MpiTransport::swallow(MPI_Message message, int size_bytes) {
  Unwanted& unwanted = unwanted_.emplace_back();
  unwanted.bytes.resize(static_cast<std::size_t>(size_bytes));
  job_.check(MPI_Imrecv(unwanted.bytes.data(), size_bytes, MPI_BYTE, &message, &unwanted.request), "MPI_Imrecv");
}

}  // namespace plumb::comm

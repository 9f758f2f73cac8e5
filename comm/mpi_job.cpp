// SPDX-License-Identifier: Apache-2.0
#include "mpi_job.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "control_check.hpp"

namespace plumb::comm {
namespace {

MpiOptions checked(const MpiOptions& options) {
  constexpr std::size_t most = std::numeric_limits<int>::max();
  if (options.max_piece_bytes < 1 || options.max_piece_bytes > most) {
    throw std::invalid_argument(fmt::format("MPI pieces of {} bytes; legal: 1 to {}", options.max_piece_bytes, most));
  }
  return options;
}

}  // namespace

MpiLibrary::MpiLibrary() {
  int is_up = 0;
  int is_down = 0;
  MPI_Initialized(&is_up);
  MPI_Finalized(&is_down);
  if (is_down != 0) throw std::invalid_argument("MPI is already finalised; it cannot start twice in a process");
  int level = MPI_THREAD_SINGLE;
  if (is_up == 0) {
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
      throw TransportError({TransportErrorKind::net, {}, {}, {}, 0, 0, "MPI_Init_thread failed"});
    }
    owned_ = true;
  } else {
    MPI_Query_thread(&level);
  }
  if (level < MPI_THREAD_SERIALIZED) {
    if (owned_) MPI_Finalize();
    throw std::invalid_argument(
        "MPI runs with a thread level below MPI_THREAD_SERIALIZED; ask MPI_Init_thread for at least that");
  }
}

MpiLibrary::~MpiLibrary() {
  if (owned_) MPI_Finalize();
}

MpiJob::MpiJob(const MpiOptions& options) : options_(checked(options)) {
  adopt_communicator();
  count_local_ranks();
  peers_.resize(static_cast<std::size_t>(size_));
  if (size_ > 1) expect_note();
}

MpiJob::~MpiJob() {
  if (note_request_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&note_request_);
    MPI_Wait(&note_request_, MPI_STATUS_IGNORE);
  }
  MPI_Comm_free(&communicator_);
}

void MpiJob::adopt_communicator() {
  MPI_Comm parent =
      options_.communicator_handle ? MPI_Comm_f2c(*options_.communicator_handle) : MPI_Comm{MPI_COMM_WORLD};
  int rank = 0;
  int size = 0;
  if (parent == MPI_COMM_NULL || MPI_Comm_rank(parent, &rank) != MPI_SUCCESS ||
      MPI_Comm_size(parent, &size) != MPI_SUCCESS) {
    throw std::invalid_argument("the communicator handle names no communicator");
  }
  rank_ = PeerId{rank};
  size_ = size;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(parent, &communicator_, &request), "MPI_Comm_idup");
  await(request, "take a communicator of their own");
  check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

void MpiJob::count_local_ranks() {
  MPI_Comm local = MPI_COMM_NULL;
  check(MPI_Comm_split_type(communicator_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local), "MPI_Comm_split_type");
  int num_local = 1;
  MPI_Comm_size(local, &num_local);
  MPI_Comm_free(&local);
  num_local_ranks_ = num_local;
}

void MpiJob::await(MPI_Request& request, const char* what) {
  const auto deadline = std::chrono::steady_clock::now() + std::min(options_.start_limit, longest_wait);
  for (int done = 0; done == 0;) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    if (std::chrono::steady_clock::now() > deadline) {
      library_.abandon();
      TransportFault fault;
      fault.kind = TransportErrorKind::timeout;
      fault.rank = rank_;
      fault.text = fmt::format("waited {} s for all {} ranks to {}",
                               std::chrono::duration<double>(options_.start_limit).count(), size_, what);
      throw TransportError(std::move(fault));
    }
    std::this_thread::yield();
  }
}

TransportFault MpiJob::net_fault(int code, const char* call) const {
  std::array<char, MPI_MAX_ERROR_STRING> words{};
  int length = 0;
  MPI_Error_string(code, words.data(), &length);
  TransportFault fault;
  fault.kind = TransportErrorKind::net;
  fault.rank = rank_;
  fault.text = fmt::format("{}: {}", call, words.data());
  return fault;
}

void MpiJob::check(int code, const char* call) const {
  if (code != MPI_SUCCESS) throw TransportError(net_fault(code, call));
}

void MpiJob::expect_note() {
  check(MPI_Irecv(&incoming_note_, sizeof(Note), MPI_BYTE, MPI_ANY_SOURCE, note_tag, communicator_, &note_request_),
        "MPI_Irecv");
}

void MpiJob::poll() {
  while (size_ > 1) {
    int done = 0;
    MPI_Status status;
    check(MPI_Test(&note_request_, &done, &status), "MPI_Test");
    if (done == 0) return;
    note_arrived(status);
  }
}

void MpiJob::note_arrived(const MPI_Status& status) {
  const PeerId from{status.MPI_SOURCE};
  Peer& peer = peers_[static_cast<std::size_t>(from.value)];
  switch (incoming_note_.kind) {
    case NoteKind::failed:
      if (!failure_) {
        failure_ = TransportFault{TransportErrorKind::peer,
                                  rank_,
                                  from,
                                  {},
                                  0,
                                  0,
                                  fmt::format("rank {} failed: {}", from.value, incoming_note_.text.data())};
      }
      break;
    case NoteKind::drained:
      if (!std::exchange(peer.drained, true)) ++num_drained_;
      break;
    case NoteKind::left:
      if (!peer.left) ++num_left_;
      peer.left = incoming_note_.posted;
      break;
  }
  expect_note();
}

void MpiJob::send_note(PeerId to, const Note& note) {
  outgoing_notes_.push_back(note);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(&outgoing_notes_.back(), sizeof(Note), MPI_BYTE, to.value, note_tag, communicator_, &request),
        "MPI_Isend");
  note_sends_.push_back(request);
}

void MpiJob::fail(TransportFault fault) {
  if (failure_) return;
  Note note;
  note.kind = NoteKind::failed;
  std::copy_n(fault.text.begin(), std::min(fault.text.size(), note.text.size() - 1), note.text.begin());
  failure_ = std::move(fault);
  for (std::int32_t peer = 0; peer < size_; ++peer) {
    if (peer != rank_.value) send_note(PeerId{peer}, note);
  }
}

void MpiJob::tell_drained() {
  Note note;
  note.kind = NoteKind::drained;
  for (std::int32_t peer = 0; peer < size_; ++peer) {
    if (peer != rank_.value) send_note(PeerId{peer}, note);
  }
}

void MpiJob::tell_left(const std::vector<PostedToPeer>& posted) {
  Note note;
  note.kind = NoteKind::left;
  for (std::int32_t peer = 0; peer < size_; ++peer) {
    note.posted = posted[static_cast<std::size_t>(peer)];
    if (peer != rank_.value) send_note(PeerId{peer}, note);
  }
}

const PostedToPeer* MpiJob::left(PeerId peer) const noexcept {
  const auto& said = peers_[static_cast<std::size_t>(peer.value)].left;
  return said ? &*said : nullptr;
}

bool MpiJob::all_done(std::vector<MPI_Request>& requests) noexcept {
  int done = 0;
  MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
  return done != 0;
}

void MpiJob::send_text(std::string text) {
  Broadcast& broadcast = texts_.emplace_back();
  broadcast.text = std::move(text);
  broadcast.requests.assign(static_cast<std::size_t>(size_), MPI_REQUEST_NULL);
  for (std::int32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_.value) continue;
    check(MPI_Isend(broadcast.text.data(), static_cast<int>(broadcast.text.size()), MPI_BYTE, peer, text_tag,
                    communicator_, &broadcast.requests[static_cast<std::size_t>(peer)]),
          "MPI_Isend");
  }
}

bool MpiJob::texts_sent() {
  texts_.remove_if([](Broadcast& broadcast) { return all_done(broadcast.requests); });
  return texts_.empty();
}

void MpiJob::abort() noexcept {
  const int code = options_.abort_exit_code;
  try {  // MPI_Abort itself has been seen to hang
    std::thread([code] {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      std::_Exit(code);
    }).detach();
  } catch (const std::exception&) {
    std::_Exit(code);
  }
  MPI_Abort(communicator_, code);
  std::_Exit(code);
}

}  // namespace plumb::comm

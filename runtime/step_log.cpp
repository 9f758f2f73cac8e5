// SPDX-License-Identifier: Apache-2.0
#include "plumb/runtime/step_log.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

static_assert(std::is_trivially_copyable_v<StepRecord::Computation> &&
              std::is_trivially_copyable_v<StepRecord::MessageEnd>);

struct RecordHeader {
  std::int64_t step = 0;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::uint64_t num_compute = 0;
  std::uint64_t num_comm = 0;
};

template <class T>
void append(std::string& bytes, const T* first, std::size_t count) {
  bytes.append(reinterpret_cast<const char*>(first), count * sizeof(T));
}

template <class T>
void take(std::string_view& bytes, T* first, std::size_t count) {
  if (count > 0) std::memcpy(first, bytes.data(), count * sizeof(T));
  bytes.remove_prefix(count * sizeof(T));
}

}  // namespace

std::string to_bytes(const StepRecord& record) {
  const RecordHeader header{record.step, record.start_ns, record.end_ns, record.compute.size(), record.comm.size()};
  std::string bytes;
  append(bytes, &header, 1);
  append(bytes, record.compute.data(), record.compute.size());
  append(bytes, record.comm.data(), record.comm.size());
  return bytes;
}

StepRecord record_from_bytes(std::string_view bytes) {
  RecordHeader header;
  const std::size_t size = bytes.size();
  if (size >= sizeof header) take(bytes, &header, 1);
  if (size < sizeof header || header.num_compute > bytes.size() || header.num_comm > bytes.size() ||
      bytes.size() !=
          header.num_compute * sizeof(StepRecord::Computation) + header.num_comm * sizeof(StepRecord::MessageEnd)) {
    throw InputError("the record of a step has a wrong length: " + std::to_string(size) + " bytes");
  }
  StepRecord record;
  record.step = header.step;
  record.start_ns = header.start_ns;
  record.end_ns = header.end_ns;
  record.compute.resize(header.num_compute);
  record.comm.resize(header.num_comm);
  take(bytes, record.compute.data(), record.compute.size());
  take(bytes, record.comm.data(), record.comm.size());
  return record;
}

StepLog::StepLog(RankId rank, std::shared_ptr<const Clock> clock, const WireTimes* wire, Spot* spot)
    : rank_(rank),
      clock_(clock ? std::move(clock) : std::make_shared<SteadyClock>()),
      wire_(wire),
      spot_(spot != nullptr ? *spot : own_spot_) {}

void StepLog::expect(const Program& program) {
  const auto known =
      std::find_if(programs_.begin(), programs_.end(), [&](const auto& places) { return places->program == &program; });
  if (known != programs_.end()) return;
  auto places = std::make_unique<Places>();
  places->program = &program;
  places->of_message.assign(program.messages.size(), -1);
  const std::vector<CommStep>& comm = program.ranks.at(rank_.index()).comm;
  for (std::size_t i = 0; i < comm.size(); ++i) {
    if (comm[i].kind != CommKind::send && comm[i].kind != CommKind::receive) continue;
    places->of_message[comm[i].message.index()] = static_cast<std::int32_t>(i);
  }
  record_.compute.reserve(program.ranks[rank_.index()].compute.size());
  record_.comm.reserve(comm.size());
  programs_.push_back(std::move(places));
}

void StepLog::begin(const Program& program, std::int64_t step) {
  const auto known =
      std::find_if(programs_.begin(), programs_.end(), [&](const auto& places) { return places->program == &program; });
  if (known == programs_.end()) throw std::logic_error("a step log was not told of the program that it is to log");
  places_ = known->get();
  record_.step = step;
  record_.compute.assign(program.ranks[rank_.index()].compute.size(), {});
  record_.comm.assign(program.ranks[rank_.index()].comm.size(), {});
  num_computed_ = 0;
  spot_.compute.store(0, std::memory_order_relaxed);
  spot_.running_since_ns.store(0, std::memory_order_relaxed);
  record_.start_ns = now();
  record_.end_ns = 0;
}

void StepLog::end() { record_.end_ns = now(); }

void StepLog::compute_starting(RankId, const Compute&) {
  const std::int64_t at = now();
  record_.compute[num_computed_].start_ns = at;
  spot_.running_since_ns.store(at, std::memory_order_release);
}

void StepLog::compute_finished(RankId, const Compute&) {
  record_.compute[num_computed_].end_ns = now();
  ++num_computed_;
  spot_.compute.store(static_cast<std::int32_t>(num_computed_), std::memory_order_relaxed);
  spot_.running_since_ns.store(0, std::memory_order_release);
}

void StepLog::message_starting(RankId, const MessageEvent& event) { end_of(event).posted_ns = now(); }

void StepLog::message_finished(RankId, const MessageEvent& event) {
  StepRecord::MessageEnd& end = end_of(event);
  if (wire_ != nullptr) end.started_ns = wire_->started.count();
  end.finished_ns = now();
}

}  // namespace plumb

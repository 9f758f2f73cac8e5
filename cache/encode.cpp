// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/encode.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <new>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace plumb {
namespace {

class VectorSink {
 public:
  void write(const std::uint8_t* data, std::size_t size) {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class HashSink {
 public:
  HashSink() : state_(XXH3_createState()) {
    if (!state_) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }
  void write(const std::uint8_t* data, std::size_t size) { XXH3_128bits_update(state_.get(), data, size); }
  Digest digest() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return {hash.high64, hash.low64};
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

// Writes a program's parts to a sink. Steps are written with their waits and slots in place: the pools behind them are
// an arrangement in memory, and two programs that do the same have the same bytes however theirs are laid out.
template <class Sink>
class Encoder {
 public:
  Sink& finish() {
    flush();
    return sink_;
  }

  void program(const Program& program) {
    text("plumbline program 1");
    configuration(program);
    routing(program.routing);
    messages(program.messages);
    count(program.ranks.size());
    for (const RankProgram& rank : program.ranks) {
      this->rank(rank);
    }
  }

  void configuration(const Program& program) {
    number(program.layout.pp());
    number(program.layout.vp());
    number(program.layout.microbatches());
    byte(program.layout.placement());
    number(program.depth.sublayers());
    number(program.depth.block_sublayers());
    byte(program.depth.residual());
    numbers(program.depth.cuts());
    byte(program.routing.policy);
    text(program.schedule_name);
    byte(program.forward_only);
    number(program.post_ahead);
  }

  void routing(const Routing& routing) {
    count(routing.holdings.size());
    for (const Holding& holding : routing.holdings) {
      numbers({holding.block.value, holding.rank.value, holding.bringer.value, holding.parent.value,
               holding.transfer.value});
      ids(holding.children);
      ids(holding.readers);
    }
    count(routing.transfers.size());
    for (const Transfer& transfer : routing.transfers) {
      numbers({transfer.from.value, transfer.to.value, transfer.from_chunk.value, transfer.to_chunk.value});
      byte(transfer.lane);
      byte(transfer.partial);
      ids(transfer.holdings);
      number(transfer.after_arrival.value);
      number(transfer.after_chunk.value);
    }
    lists(routing.into_chunk);
    lists(routing.after_chunk);
    ids(routing.root);
    lists(routing.holdings_of);
  }

  void messages(const std::vector<Message>& messages) {
    count(messages.size());
    for (const Message& message : messages) {
      number(message.transfer.value);
      number(message.microbatch.value);
      byte(message.direction);
    }
  }

  void computes(const RankProgram& rank) {
    count(rank.compute.size());
    for (const ComputeStep& step : rank.compute) {
      compute(step.compute);
    }
  }

  void rank(const RankProgram& rank) {
    number(rank.num_value_slots);
    number(rank.num_gradient_slots);
    count(rank.compute.size());
    for (const ComputeStep& step : rank.compute) {
      compute(step.compute);
      byte(step.overlaps_next);
      waits(rank, step.waits);
      count(step.operands.size());
      for (const Operand& operand : rank.operands_of(step.operands)) {
        byte(operand.role);
        byte(operand.first_touch);
        number(operand.slot);
        number(operand.block.value);
      }
      releases(rank, step.releases);
    }
    count(rank.comm.size());
    for (const CommStep& step : rank.comm) {
      byte(step.kind);
      byte(step.first_touch);
      byte(step.lane);
      numbers({step.peer.value, step.message.value, step.holding.value});
      waits(rank, step.waits);
      count(step.segments.size());
      for (const Slot& slot : rank.segments_of(step.segments)) {
        this->slot(slot);
      }
      releases(rank, step.releases);
    }
    count(rank.order.size());
    for (const StepRef& step : rank.order) {
      byte(step.comm);
      number(step.index);
    }
  }

 private:
  template <class T>
  void byte(T value) {
    room(1);
    buffer_[used_++] = static_cast<std::uint8_t>(value);
  }

  void number(std::int32_t value) { little_endian(static_cast<std::uint32_t>(value)); }
  void count(std::uint64_t value) { little_endian(value); }

  template <class Unsigned>
  void little_endian(Unsigned value) {
    room(sizeof value);
    for (std::size_t i = 0; i < sizeof value; ++i) {
      buffer_[used_++] = static_cast<std::uint8_t>(value >> (8 * i));
    }
  }

  void numbers(std::initializer_list<std::int32_t> values) {
    for (const std::int32_t value : values) {
      number(value);
    }
  }
  void numbers(std::span<const int> values) {
    count(values.size());
    for (const int value : values) {
      number(value);
    }
  }
  template <class IdType>
  void ids(const std::vector<IdType>& list) {
    count(list.size());
    for (const IdType id : list) {
      number(id.value);
    }
  }
  template <class IdType>
  void lists(const std::vector<std::vector<IdType>>& all) {
    count(all.size());
    for (const std::vector<IdType>& list : all) {
      ids(list);
    }
  }
  void text(std::string_view text) {
    count(text.size());
    for (const char c : text) {
      byte(c);
    }
  }
  void compute(const Compute& compute) {
    byte(compute.op);
    number(compute.chunk.value);
    number(compute.microbatch.value);
  }
  void slot(const Slot& slot) {
    byte(slot.slot_class);
    number(slot.index);
  }
  void waits(const RankProgram& rank, Range range) {
    count(range.size());
    for (const Wait& wait : rank.waits_of(range)) {
      byte(wait.on);
      number(wait.step);
    }
  }
  void releases(const RankProgram& rank, Range range) {
    count(range.size());
    for (const Release& release : rank.releases_of(range)) {
      slot(release.slot);
      waits(rank, release.waits);
    }
  }

  void room(std::size_t size) {
    if (used_ + size > buffer_.size()) flush();
  }
  void flush() {
    sink_.write(buffer_.data(), used_);
    used_ = 0;
  }

  Sink sink_;
  std::size_t used_ = 0;
  std::array<std::uint8_t, 4096> buffer_;
};

template <class Write>
std::string digest_text(Write&& write) {
  Encoder<HashSink> encoder;
  write(encoder);
  return to_string(encoder.finish().digest());
}

// A list a person can compare at a glance, or its digest where it would fill the screen.
std::string cuts_text(const DepthMap& depth) {
  constexpr std::size_t most_shown = 64;
  if (depth.cuts().size() <= most_shown) return fmt::format("{}", fmt::join(depth.cuts(), ","));
  HashSink sink;
  for (const int cut : depth.cuts()) {
    std::array<std::uint8_t, 4> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::uint8_t>(static_cast<std::uint32_t>(cut) >> (8 * i));
    }
    sink.write(bytes.data(), bytes.size());
  }
  return fmt::format("{} cuts, digest {}", depth.cuts().size(), to_string(sink.digest()));
}

}  // namespace

std::vector<std::byte> canonical_bytes(const Program& program) {
  Encoder<VectorSink> encoder;
  encoder.program(program);
  return encoder.finish().take();
}

std::string to_string(const Digest& digest) { return fmt::format("{:016x}{:016x}", digest.high, digest.low); }

Digest digest(const Program& program) {
  Encoder<HashSink> encoder;
  encoder.program(program);
  return encoder.finish().digest();
}

Fingerprint fingerprint(const Program& program) {
  Fingerprint fields;
  const auto add = [&](std::string field, std::string value) {
    fields.emplace_back(std::move(field), std::move(value));
  };
  add("pp", fmt::format("{}", program.layout.pp()));
  add("vp", fmt::format("{}", program.layout.vp()));
  add("microbatches", fmt::format("{}", program.layout.microbatches()));
  add("placement", std::string(to_string(program.layout.placement())));
  add("sublayers", fmt::format("{}", program.depth.sublayers()));
  add("residual", std::string(to_string(program.depth.residual())));
  add("block_sublayers", fmt::format("{}", program.depth.block_sublayers()));
  add("cuts", cuts_text(program.depth));
  add("cache", std::string(to_string(program.routing.policy)));
  add("schedule", program.schedule_name);
  add("forward_only", program.forward_only ? "yes" : "no");
  add("post_ahead", fmt::format("{}", program.post_ahead));
  add("order of computations", digest_text([&](auto& encoder) {
        for (const RankProgram& rank : program.ranks) {
          encoder.computes(rank);
        }
      }));
  add("routing", digest_text([&](auto& encoder) { encoder.routing(program.routing); }));
  add("messages", digest_text([&](auto& encoder) { encoder.messages(program.messages); }));
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    add(fmt::format("program of rank {}", rank),
        digest_text([&](auto& encoder) { encoder.rank(program.ranks[rank]); }));
  }
  add("program", to_string(digest(program)));
  return fields;
}

std::optional<Difference> first_difference(const Fingerprint& mine, const Fingerprint& theirs) {
  const std::string missing = "(missing)";
  for (std::size_t i = 0; i < std::max(mine.size(), theirs.size()); ++i) {
    if (i >= mine.size()) return Difference{theirs[i].first, missing, theirs[i].second};
    if (i >= theirs.size()) return Difference{mine[i].first, mine[i].second, missing};
    if (mine[i].first != theirs[i].first) return Difference{mine[i].first, mine[i].second, missing};
    if (mine[i].second != theirs[i].second) return Difference{mine[i].first, mine[i].second, theirs[i].second};
  }
  return std::nullopt;
}

}  // namespace plumb

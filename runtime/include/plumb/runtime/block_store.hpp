// SPDX-License-Identifier: Apache-2.0
//
// block_store.hpp: the cache manager of one rank: the memory behind a program's slots, and what each slot holds.
//
// A slot is one [tokens, width] tensor in one of two classes, values and gradients. Which tensor lives in which slot,
// and when, was decided by the lowering; the store provides the memory, remembers per slot the (microbatch, virtual
// stage, block) that the program put there, and refuses a step that would read something else or overwrite something
// alive. It is NOT an allocator: nothing is allocated between two calls of configure(). Ownership: this object.
// Threads: configure() alone; the rest may be called by both workers of a rank, where the waits of the program order
// all accesses to one slot.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/kernels/storage.hpp"
#include "plumb/schedule/ids.hpp"

namespace plumb {

// The tensors of a step.
struct SlotShape {
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  Storage storage = Storage::fp32;

  std::size_t value_bytes() const;
  std::size_t gradient_bytes() const;
  friend bool operator==(const SlotShape&, const SlotShape&) = default;
};

// What a slot holds.
struct SlotContent {
  enum class Kind : std::uint8_t {
    nothing,
    block,            // the value of a closed block
    partial,          // the value of the block that is open at a cut
    block_sum,        // the accumulator of a block's gradient
    arrived_sum,      // a sum that came from another rank and is not yet added
    partial_gradient  // the gradient of the open block at a cut
  };
  Kind kind = Kind::nothing;
  Microbatch microbatch;
  VirtualStage stage;  // blocks: of the first chunk on this rank that sees it (its maker or bringer)
  BlockId block;       // blocks
  ChunkId cut;         // partials: the cut behind this chunk

  static SlotContent of_block(Kind kind, Microbatch microbatch, VirtualStage stage, BlockId block);
  static SlotContent of_partial(Kind kind, Microbatch microbatch, ChunkId cut);
  std::uint64_t packed() const;
  static SlotContent unpacked(std::uint64_t bits);
  friend bool operator==(const SlotContent&, const SlotContent&) = default;
};

std::string to_string(const SlotContent& content);

class BlockStore {
 public:
  BlockStore() = default;
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  // Makes room for so many slots of this shape and forgets all content. Memory grows to the largest demand ever made
  // and is kept. `poison`: slots that hold nothing are filled with NaN. Throws InputError for a shape without elements
  // or beyond the address space, std::bad_alloc when there is no memory.
  void configure(const SlotShape& shape, std::int32_t num_value_slots, std::int32_t num_gradient_slots, bool poison);

  // Forgets all content, as between two steps.
  void clear();

  const SlotShape& shape() const { return shape_; }
  std::int32_t num_slots(SlotClass slot_class) const { return arena(slot_class).num_slots; }
  std::size_t bytes_of(SlotClass slot_class) const { return arena(slot_class).slot_bytes; }
  std::size_t allocated_bytes() const { return arenas_[0].capacity_bytes + arenas_[1].capacity_bytes; }

  std::byte* data(Slot slot) const {
    const Arena& home = arena(slot.slot_class);
    return home.memory + static_cast<std::size_t>(slot.index) * home.stride_bytes;
  }
  View view(Slot slot) const;

  // The slot must hold nothing; from now on it holds `content`. False if it holds something.
  bool occupy(Slot slot, std::uint64_t packed_content);
  bool holds(Slot slot, std::uint64_t packed_content) const { return record(slot).load(relaxed) == packed_content; }
  SlotContent content(Slot slot) const { return SlotContent::unpacked(record(slot).load(relaxed)); }
  void release(Slot slot);

  // Where a live block value, or its gradient's accumulator, is. Linear in the number of slots: for inspection, not for
  // use inside a step. Call while the executor is idle, or from a Stage for what the running step reads or writes.
  std::optional<ConstView> find(Microbatch microbatch, VirtualStage stage, BlockId block) const;
  std::optional<ConstView> find_sum(Microbatch microbatch, VirtualStage stage, BlockId block) const;
  std::int32_t num_live(SlotClass slot_class) const;

 private:
  static constexpr auto relaxed = std::memory_order_relaxed;

  struct Arena {
    std::byte* memory = nullptr;
    std::size_t capacity_bytes = 0;
    std::size_t slot_bytes = 0;
    std::size_t stride_bytes = 0;  // from slot to slot; keeps the rows of one token apart in the caches
    std::int32_t num_slots = 0;
    std::size_t record_capacity = 0;
    std::unique_ptr<std::atomic<std::uint64_t>[]> records;  // packed SlotContent
  };

  Arena& arena(SlotClass slot_class) { return arenas_[static_cast<std::size_t>(slot_class)]; }
  const Arena& arena(SlotClass slot_class) const { return arenas_[static_cast<std::size_t>(slot_class)]; }
  std::atomic<std::uint64_t>& record(Slot slot) const {
    return arena(slot.slot_class).records[static_cast<std::size_t>(slot.index)];
  }
  void grow(Arena& home, std::int32_t num_slots);
  void poison(Slot slot) const;
  std::optional<ConstView> find_content(SlotClass slot_class, const SlotContent& content) const;

  SlotShape shape_;
  bool poison_ = false;
  Arena arenas_[2];
};

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "plumb/runtime/block_store.hpp"

#include <algorithm>
#include <limits>
#include <new>

#include <fmt/format.h>

#include "plumb/kernels/number_formats.hpp"
#include "plumb/kernels/tensor_stride.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

// A cache line, and enough for any vector instruction.
constexpr std::size_t alignment_bytes = 64;

// Widths of the packed fields; Layout and DepthMap keep every id below these.
constexpr int kind_bits = 3;
constexpr int microbatch_bits = 21;
constexpr int stage_bits = 11;
constexpr int block_bits = 21;

template <class T>
void fill(std::byte* data, std::size_t size_bytes, T value) {
  std::fill_n(reinterpret_cast<T*>(data), size_bytes / sizeof(T), value);
}

void fill_nan(std::byte* data, std::size_t size_bytes, Storage storage) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  switch (storage) {
    case Storage::fp64:
      return fill(data, size_bytes, std::numeric_limits<double>::quiet_NaN());
    case Storage::bf16:
      return fill(data, size_bytes, to_bf16(nan));
    case Storage::fp16:
      return fill(data, size_bytes, to_fp16(nan));
    case Storage::fp32:
      break;
  }
  fill(data, size_bytes, nan);
}

}  // namespace

std::size_t SlotShape::value_bytes() const {
  return static_cast<std::size_t>(tokens * width) * bytes_per_element(storage);
}

std::size_t SlotShape::gradient_bytes() const {
  return static_cast<std::size_t>(tokens * width) * bytes_per_element(gradient_storage(storage));
}

SlotContent SlotContent::of_block(Kind kind, Microbatch microbatch, VirtualStage stage, BlockId block) {
  return {kind, microbatch, stage, block, ChunkId{}};
}

SlotContent SlotContent::of_partial(Kind kind, Microbatch microbatch, ChunkId cut) {
  return {kind, microbatch, VirtualStage{}, BlockId{}, cut};
}

std::uint64_t SlotContent::packed() const {
  const bool is_partial = kind == Kind::partial || kind == Kind::partial_gradient;
  std::uint64_t bits = static_cast<std::uint64_t>(is_partial ? cut.value : block.value);
  bits = bits << stage_bits | static_cast<std::uint64_t>(stage.value);
  bits = bits << microbatch_bits | static_cast<std::uint64_t>(microbatch.value);
  return bits << kind_bits | static_cast<std::uint64_t>(kind);
}

SlotContent SlotContent::unpacked(std::uint64_t bits) {
  const auto take = [&bits](int width) {
    const auto field = static_cast<std::int32_t>(bits & ((std::uint64_t{1} << width) - 1));
    bits >>= width;
    return field;
  };
  SlotContent content;
  content.kind = static_cast<Kind>(take(kind_bits));
  content.microbatch = Microbatch(take(microbatch_bits));
  content.stage = VirtualStage(take(stage_bits));
  const bool is_partial = content.kind == Kind::partial || content.kind == Kind::partial_gradient;
  (is_partial ? content.cut.value : content.block.value) = take(block_bits);
  return content;
}

std::string to_string(const SlotContent& content) {
  const int microbatch = content.microbatch.value;
  switch (content.kind) {
    case SlotContent::Kind::nothing:
      return "nothing";
    case SlotContent::Kind::block:
      return fmt::format("block {} of microbatch {} for virtual stage {}", content.block.value, microbatch,
                         content.stage.value);
    case SlotContent::Kind::block_sum:
      return fmt::format("the gradient of block {} of microbatch {} for virtual stage {}", content.block.value,
                         microbatch, content.stage.value);
    case SlotContent::Kind::arrived_sum:
      return fmt::format("an arrived gradient of block {} of microbatch {} for virtual stage {}", content.block.value,
                         microbatch, content.stage.value);
    case SlotContent::Kind::partial:
      return fmt::format("the partial behind chunk {} of microbatch {}", content.cut.value, microbatch);
    case SlotContent::Kind::partial_gradient:
      return fmt::format("the gradient of the partial behind chunk {} of microbatch {}", content.cut.value, microbatch);
  }
  return "?";
}

BlockStore::~BlockStore() {
  for (const Arena& home : arenas_) {
    ::operator delete (home.memory, std::align_val_t{alignment_bytes});
  }
}

void BlockStore::configure(const SlotShape& shape, std::int32_t num_value_slots, std::int32_t num_gradient_slots,
                           bool poison) {
  constexpr std::int64_t max_elements = std::int64_t{1} << 40;
  if (shape.tokens < 1 || shape.width < 1 || shape.tokens > max_elements / shape.width) {
    throw InputError(
        fmt::format("a tensor of {} tokens x {} elements; both must be at least 1, their product at most {}",
                    shape.tokens, shape.width, max_elements));
  }
  shape_ = shape;
  poison_ = poison;
  const auto home = [&](SlotClass slot_class, std::size_t slot_bytes, Storage storage) -> Arena& {
    Arena& made = arena(slot_class);
    made.slot_bytes = slot_bytes;
    made.stride_bytes = tensor_stride_bytes(shape.tokens, shape.width, storage);
    return made;
  };
  grow(home(SlotClass::value, shape.value_bytes(), shape.storage), num_value_slots);
  grow(home(SlotClass::gradient, shape.gradient_bytes(), gradient_storage(shape.storage)), num_gradient_slots);
  clear();
}

void BlockStore::grow(Arena& home, std::int32_t num_slots) {
  home.num_slots = num_slots;
  const auto count = static_cast<std::size_t>(num_slots);
  if (count > 0 && home.stride_bytes > std::numeric_limits<std::ptrdiff_t>::max() / count) throw std::bad_alloc();
  const std::size_t needed = home.stride_bytes * count;
  if (needed > home.capacity_bytes) {
    ::operator delete (home.memory, std::align_val_t{alignment_bytes});
    home.memory = nullptr;
    home.capacity_bytes = 0;
    home.memory = static_cast<std::byte*>(::operator new (needed, std::align_val_t{alignment_bytes}));
    home.capacity_bytes = needed;
  }
  if (count > home.record_capacity) {
    home.records = std::make_unique<std::atomic<std::uint64_t>[]>(count);
    home.record_capacity = count;
  }
}

void BlockStore::clear() {
  for (const SlotClass slot_class : {SlotClass::value, SlotClass::gradient}) {
    for (std::int32_t i = 0; i < num_slots(slot_class); ++i)
      release({slot_class, i});
  }
}

View BlockStore::view(Slot slot) const {
  const Storage storage = slot.slot_class == SlotClass::value ? shape_.storage : gradient_storage(shape_.storage);
  return {data(slot), shape_.tokens, shape_.width, storage};
}

bool BlockStore::occupy(Slot slot, std::uint64_t packed_content) {
  std::atomic<std::uint64_t>& holder = record(slot);
  if (holder.load(relaxed) != 0) return false;
  holder.store(packed_content, relaxed);
  return true;
}

void BlockStore::release(Slot slot) {
  record(slot).store(0, relaxed);
  if (poison_) poison(slot);
}

void BlockStore::poison(Slot slot) const { fill_nan(data(slot), bytes_of(slot.slot_class), view(slot).storage); }

std::optional<ConstView> BlockStore::find_content(SlotClass slot_class, const SlotContent& content) const {
  const std::uint64_t packed = content.packed();
  for (std::int32_t i = 0; i < num_slots(slot_class); ++i) {
    if (holds({slot_class, i}, packed)) return view({slot_class, i});
  }
  return std::nullopt;
}

std::optional<ConstView> BlockStore::find(Microbatch microbatch, VirtualStage stage, BlockId block) const {
  return find_content(SlotClass::value, SlotContent::of_block(SlotContent::Kind::block, microbatch, stage, block));
}

std::optional<ConstView> BlockStore::find_sum(Microbatch microbatch, VirtualStage stage, BlockId block) const {
  return find_content(SlotClass::gradient,
                      SlotContent::of_block(SlotContent::Kind::block_sum, microbatch, stage, block));
}

std::int32_t BlockStore::num_live(SlotClass slot_class) const {
  std::int32_t live = 0;
  for (std::int32_t i = 0; i < num_slots(slot_class); ++i)
    live += holds({slot_class, i}, 0) ? 0 : 1;
  return live;
}

}  // namespace plumb

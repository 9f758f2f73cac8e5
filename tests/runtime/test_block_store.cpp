// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "plumb/kernels/number_formats.hpp"
#include "plumb/runtime/block_store.hpp"
#include "plumb/schedule/error.hpp"
#include "support/catch.hpp"

namespace plumb::test {
namespace {

Slot value_slot(std::int32_t index) { return {SlotClass::value, index}; }
Slot gradient_slot(std::int32_t index) { return {SlotClass::gradient, index}; }

SlotContent block_of(int microbatch, int stage, int block) {
  return SlotContent::of_block(SlotContent::Kind::block, Microbatch(microbatch), VirtualStage(stage), BlockId(block));
}

bool all_nan(const ConstView& view) {
  for (std::int64_t i = 0; i < view.num_elements(); ++i) {
    const bool nan = view.storage == Storage::fp64   ? std::isnan(elements<double>(view)[i])
                     : view.storage == Storage::bf16 ? std::isnan(to_float(elements<Bf16>(view)[i]))
                     : view.storage == Storage::fp16 ? std::isnan(to_float(elements<Fp16>(view)[i]))
                                                     : std::isnan(elements<float>(view)[i]);
    if (!nan) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("what a slot holds survives packing, up to the largest ids", "[runtime]") {
  using Kind = SlotContent::Kind;
  for (const int microbatch : {0, 1, 1048575}) {
    for (const int stage : {0, 1023}) {
      for (const int block : {0, 7, 1048576}) {
        const auto content =
            SlotContent::of_block(Kind::arrived_sum, Microbatch(microbatch), VirtualStage(stage), BlockId(block));
        CHECK(SlotContent::unpacked(content.packed()) == content);
      }
    }
    for (const int cut : {0, 65535}) {
      const auto content = SlotContent::of_partial(Kind::partial_gradient, Microbatch(microbatch), ChunkId(cut));
      CHECK(SlotContent::unpacked(content.packed()) == content);
    }
  }
  CHECK(SlotContent{}.packed() == 0);
  CHECK(block_of(0, 0, 0).packed() != 0);
}

TEST_CASE("slots are aligned, apart, and of their class's size", "[runtime]") {
  BlockStore store;
  store.configure({3, 5, Storage::fp32}, 4, 2, false);
  CHECK(store.bytes_of(SlotClass::value) == 60);
  CHECK(store.bytes_of(SlotClass::gradient) == 60);
  for (std::int32_t i = 0; i < 4; ++i) {
    CHECK(reinterpret_cast<std::uintptr_t>(store.data(value_slot(i))) % 64 == 0);
    if (i > 0) CHECK(store.data(value_slot(i)) - store.data(value_slot(i - 1)) >= 60);
  }
  const View view = store.view(gradient_slot(1));
  CHECK(view.tokens == 3);
  CHECK(view.width == 5);
  CHECK(view.storage == Storage::fp32);
  store.configure({3, 5, Storage::fp64}, 4, 2, false);
  CHECK(store.bytes_of(SlotClass::value) == 120);
  CHECK(store.view(gradient_slot(0)).storage == Storage::fp64);
}

TEST_CASE("a block is found by microbatch, virtual stage and id while it is alive", "[runtime]") {
  BlockStore store;
  store.configure({2, 2, Storage::fp32}, 3, 1, false);
  CHECK_FALSE(store.find(Microbatch{4}, VirtualStage{1}, BlockId{2}));
  CHECK(store.occupy(value_slot(1), block_of(4, 1, 2).packed()));
  const auto found = store.find(Microbatch{4}, VirtualStage{1}, BlockId{2});
  REQUIRE(found);
  CHECK(found->data == store.data(value_slot(1)));
  CHECK_FALSE(store.find(Microbatch{4}, VirtualStage{0}, BlockId{2}));
  CHECK_FALSE(store.find(Microbatch{3}, VirtualStage{1}, BlockId{2}));
  CHECK_FALSE(store.find_sum(Microbatch{4}, VirtualStage{1}, BlockId{2}));
  CHECK_FALSE(store.occupy(value_slot(1), block_of(5, 1, 2).packed()));
  CHECK(store.num_live(SlotClass::value) == 1);
  store.release(value_slot(1));
  CHECK_FALSE(store.find(Microbatch{4}, VirtualStage{1}, BlockId{2}));
  CHECK(store.occupy(value_slot(1), block_of(5, 1, 2).packed()));
}

TEST_CASE("slots that hold nothing are poisoned on request", "[runtime]") {
  for (const Storage storage : {Storage::fp32, Storage::fp64, Storage::bf16, Storage::fp16}) {
    BlockStore store;
    store.configure({2, 3, storage}, 2, 2, true);
    CHECK(all_nan(store.view(value_slot(0))));
    CHECK(all_nan(store.view(gradient_slot(1))));
    std::fill_n(store.data(value_slot(0)), store.bytes_of(SlotClass::value), std::byte{0});
    store.occupy(value_slot(0), block_of(0, 0, 1).packed());
    CHECK_FALSE(all_nan(store.view(value_slot(0))));
    store.release(value_slot(0));
    CHECK(all_nan(store.view(value_slot(0))));
  }
}

TEST_CASE("memory grows to the largest demand and stays", "[runtime]") {
  BlockStore store;
  store.configure({4, 4, Storage::fp32}, 10, 3, false);
  const std::size_t large = store.allocated_bytes();
  const std::byte* const place = store.data(value_slot(0));
  store.configure({4, 4, Storage::fp32}, 2, 1, false);
  CHECK(store.allocated_bytes() == large);
  CHECK(store.num_slots(SlotClass::value) == 2);
  store.configure({4, 4, Storage::fp32}, 10, 3, false);
  CHECK(store.data(value_slot(0)) == place);
  store.configure({4, 4, Storage::fp32}, 11, 3, false);
  CHECK(store.allocated_bytes() > large);
}

TEST_CASE("rows of one token in neighbouring slots do not compete for the same places of a cache", "[runtime]") {
  BlockStore store;
  store.configure({16, 256, Storage::fp32}, 3, 3, false);
  for (const SlotClass slot_class : {SlotClass::value, SlotClass::gradient}) {
    const auto distance = store.data(Slot{slot_class, 1}) - store.data(Slot{slot_class, 0});
    CHECK(distance >= static_cast<std::ptrdiff_t>(store.bytes_of(slot_class)));
    CHECK(distance % 64 == 0);
    CHECK(distance % 4096 != 0);
    CHECK(store.data(Slot{slot_class, 2}) - store.data(Slot{slot_class, 1}) == distance);
  }
}

TEST_CASE("shapes without elements or beyond reason are refused", "[runtime]") {
  BlockStore store;
  CHECK_THROWS_AS(store.configure({0, 4, Storage::fp32}, 1, 1, false), InputError);
  CHECK_THROWS_AS(store.configure({4, -1, Storage::fp32}, 1, 1, false), InputError);
  CHECK_THROWS_AS(store.configure({std::int64_t{1} << 40, 2, Storage::fp32}, 1, 1, false), InputError);
  CHECK_THROWS_AS(store.configure({1 << 20, 1 << 20, Storage::fp64}, 1 << 30, 1, false), std::bad_alloc);
}

}  // namespace plumb::test

// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <vector>

#include "stamp.hpp"
#include "support/catch.hpp"

namespace plumb {
namespace {

struct Tensor {
  Tensor(std::int64_t size, Storage storage_in)
      : storage(storage_in),
        bytes(static_cast<std::size_t>(size) * bytes_per_element(storage_in)),
        num_elements(size) {}
  View view() { return {bytes.data(), 1, num_elements, storage}; }
  Storage storage;
  std::vector<std::byte> bytes;
  std::int64_t num_elements;
};

TEST_CASE("a stamp is found again and a torn or foreign one is named", "[rehearsal]") {
  std::mt19937 random(3);
  for (const Storage storage : {Storage::bf16, Storage::fp32, Storage::fp64}) {
    for (int round = 0; round < 200; ++round) {
      const auto least =
          static_cast<unsigned>(least_unit_bytes / static_cast<std::int64_t>(bytes_per_element(storage)));
      Tensor value(least + random() % 5000, storage);
      const Stamp stamp{4, 3, 2, 1};
      write_stamp(value.view(), stamp);
      CHECK_FALSE(wrong_stamp(value.view(), stamp));
      for (const Stamp& other : {Stamp{5, 3, 2, 1}, Stamp{4, 0, 2, 1}, Stamp{4, 3, 1, 1}, Stamp{4, 3, 2, -1}})
        CHECK(wrong_stamp(value.view(), other) == stamp);
      value.bytes.back() ^= std::byte{1};
      CHECK(wrong_stamp(value.view(), stamp));
    }
  }
}

TEST_CASE("contributions add up in any order and a missing or doubled one is found", "[rehearsal]") {
  const DepthMap depth(12, 2, {2, 5, 5, 8, 12});
  std::mt19937 random(4);
  for (const Storage storage : {Storage::fp32, Storage::fp64}) {
    for (int block = 0; block <= 6; ++block) {
      const BlockId id(block);
      std::vector<GradientSum> parts;
      for (ChunkId chunk = depth.closer(id).next(); chunk.value < depth.num_chunks(); chunk = chunk.next()) {
        if (depth.reads(chunk, id)) parts.push_back(contribution({7, 1, chunk.value, block}));
      }
      if (parts.empty()) continue;
      std::shuffle(parts.begin(), parts.end(), random);
      Tensor sum(1 + random() % 9000, storage);
      write_gradient(sum.view(), parts.front());
      for (std::size_t i = 1; i < parts.size(); ++i)
        add_gradient(sum.view(), parts[i]);
      const GradientSum expected = all_contributions(depth, 7, Microbatch(1), id);
      CHECK_FALSE(wrong_gradient(sum.view(), expected));
      add_gradient(sum.view(), {0, 1});  // a contribution of zero: the count still differs
      if (sum.num_elements > 2048) CHECK(wrong_gradient(sum.view(), expected));
      add_gradient(sum.view(), {3, 0});
      CHECK(wrong_gradient(sum.view(), expected));
    }
  }
}

TEST_CASE("no two chunks, blocks, microbatches or steps draw their numbers alike", "[rehearsal]") {
  int equal = 0;
  for (int i = 0; i < 1000; ++i)
    equal += contribution({i, 2, 3, 4}) == contribution({i + 1, 2, 3, 4}) ? 1 : 0;
  CHECK(equal < 200);  // 17 numbers: one in 17 by chance
}

}  // namespace
}  // namespace plumb

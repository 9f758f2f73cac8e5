// SPDX-License-Identifier: Apache-2.0
#include "stamp.hpp"

#include <cstring>

#include <fmt/format.h>

namespace plumb {
namespace {

constexpr std::int64_t stride_bytes = 4096;

// SplitMix64's finaliser.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Calls visit(place, index) for the elements that are looked at: every 4 KiB and the last one.
template <class Visit>
void for_each_place(std::int64_t num_elements, std::int64_t element_bytes, const Visit& visit) {
  const std::int64_t stride = stride_bytes / element_bytes;
  std::int64_t number = 0;
  for (std::int64_t place = 0; place < num_elements - 1; place += stride)
    visit(place, number++);
  visit(num_elements - 1, number);
}

template <class Visit>
void for_each_stamp(std::int64_t num_bytes, const Visit& visit) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(Stamp));
  for (std::int64_t offset = 0; offset + 2 * size <= num_bytes; offset += stride_bytes)
    visit(offset);
  visit(num_bytes - size);
}

std::int64_t bytes_of(ConstView view) {
  return view.num_elements() * static_cast<std::int64_t>(bytes_per_element(view.storage));
}

double element_of(const GradientSum& gradient, std::int64_t number) {
  return static_cast<double>(gradient.number + gradient.count * (number % 3));
}

template <class T>
void set_all(View sum, const GradientSum& gradient, bool add) {
  T* const elements = static_cast<T*>(sum.data);
  for_each_place(sum.num_elements(), sizeof(T), [&](std::int64_t place, std::int64_t number) {
    const T value = static_cast<T>(element_of(gradient, number));
    elements[place] = add ? elements[place] + value : value;
  });
}

template <class T>
std::optional<WrongGradient> find_wrong(ConstView sum, const GradientSum& expected) {
  const T* const elements = static_cast<const T*>(sum.data);
  std::optional<WrongGradient> wrong;
  for_each_place(sum.num_elements(), sizeof(T), [&](std::int64_t place, std::int64_t number) {
    const double should_be = element_of(expected, number);
    const double is = static_cast<double>(elements[place]);
    if (!wrong && !(is == should_be)) wrong = WrongGradient{place, is, should_be};
  });
  return wrong;
}

}  // namespace

std::string to_string(const Stamp& stamp) {
  return fmt::format("(step {}, microbatch {}, chunk {}, {})", stamp.step, stamp.microbatch, stamp.chunk,
                     stamp.block < 0 ? std::string("partial") : fmt::format("block {}", stamp.block));
}

void write_stamp(View value, const Stamp& stamp) {
  auto* const bytes = static_cast<std::byte*>(value.data);
  for_each_stamp(bytes_of(value), [&](std::int64_t offset) { std::memcpy(bytes + offset, &stamp, sizeof stamp); });
}

std::optional<Stamp> wrong_stamp(ConstView value, const Stamp& expected) {
  const auto* const bytes = static_cast<const std::byte*>(value.data);
  std::optional<Stamp> wrong;
  for_each_stamp(bytes_of(value), [&](std::int64_t offset) {
    if (std::memcmp(bytes + offset, &expected, sizeof expected) == 0 || wrong) return;
    std::memcpy(&wrong.emplace(), bytes + offset, sizeof expected);
  });
  return wrong;
}

GradientSum contribution(const Stamp& of) {
  std::uint64_t bits = 0;
  for (const std::int32_t part : {of.step, of.microbatch, of.chunk, of.block})
    bits = mixed(bits ^ static_cast<std::uint32_t>(part));
  return {static_cast<std::int64_t>(bits % 17) - 8, 1};
}

GradientSum all_contributions(const DepthMap& depth, std::int32_t step, Microbatch microbatch, BlockId block) {
  GradientSum sum;
  for (ChunkId chunk = depth.closer(block).next(); chunk.value < depth.num_chunks(); chunk = chunk.next()) {
    if (!depth.reads(chunk, block)) continue;
    const GradientSum one = contribution({step, microbatch.value, chunk.value, block.value});
    sum.number += one.number;
    sum.count += one.count;
  }
  return sum;
}

void write_gradient(View sum, const GradientSum& gradient) {
  sum.storage == Storage::fp64 ? set_all<double>(sum, gradient, false) : set_all<float>(sum, gradient, false);
}

void add_gradient(View sum, const GradientSum& gradient) {
  sum.storage == Storage::fp64 ? set_all<double>(sum, gradient, true) : set_all<float>(sum, gradient, true);
}

std::optional<WrongGradient> wrong_gradient(ConstView sum, const GradientSum& expected) {
  return sum.storage == Storage::fp64 ? find_wrong<double>(sum, expected) : find_wrong<float>(sum, expected);
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "plumb/kernels/number_formats.hpp"
#include "support/catch.hpp"

using namespace plumb;

namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

// Every finite value, ascending from zero: between neighbours, what is nearer wins, and the even one of two.
template <class T>
void check_between(T (*from_float)(float), std::uint16_t largest) {
  for (std::uint16_t k = 0; k < largest; ++k) {
    const float low = to_float(T{k});
    const float high = to_float(T{static_cast<std::uint16_t>(k + 1)});
    const float middle = low + (high - low) / 2;
    const std::uint16_t even = k % 2 == 0 ? k : static_cast<std::uint16_t>(k + 1);
    const bool right = from_float(low).bits == k && from_float(middle).bits == even &&
                       from_float(std::nextafter(middle, low)).bits == k &&
                       from_float(std::nextafter(middle, high)).bits == k + 1 && from_float(-low).bits == (k | 0x8000);
    if (!right) {
      FAIL("near value number " << k);
    }
  }
  SUCCEED();
}

}  // namespace

TEST_CASE("fp16 and bf16 are rounded to nearest, ties to even", "[kernels]") {
  check_between<Fp16>(to_fp16, 0x7bff);
  check_between<Bf16>(to_bf16, 0x7f7f);
}

TEST_CASE("16-bit formats keep infinities, NaNs and overflow apart", "[kernels]") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  CHECK(to_fp16(65504.0f).bits == 0x7bff);
  CHECK(to_fp16(65519.99f).bits == 0x7bff);
  CHECK(to_fp16(65520.0f).bits == 0x7c00);
  CHECK(to_fp16(-1e30f).bits == 0xfc00);
  CHECK(to_float(to_fp16(inf)) == inf);
  CHECK(to_float(to_bf16(-inf)) == -inf);
  CHECK(to_float(to_bf16(std::numeric_limits<float>::max())) == inf);
  for (const std::uint32_t nan : {0x7fc00000u, 0x7f800001u, 0xffffffffu, 0x7fffffffu}) {
    CHECK(std::isnan(to_float(to_bf16(std::bit_cast<float>(nan)))));
    CHECK(std::isnan(to_float(to_fp16(std::bit_cast<float>(nan)))));
  }
  CHECK(bits_of(to_float(Fp16{0x0001})) == bits_of(0x1p-24f));
  CHECK(to_fp16(0x1p-25f).bits == 0);
  CHECK(to_fp16(0x1.8p-25f).bits == 1);
}

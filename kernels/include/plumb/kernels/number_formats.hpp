// SPDX-License-Identifier: Apache-2.0
// number_formats.hpp: the two 16-bit formats of stored values, and their exact conversions.
//
// They are NOT arithmetic types: everything is computed in float and rounded once when stored, to nearest, ties to
// even. Every Bf16 and Fp16 is a float exactly. NaN stays NaN (made quiet), overflow gives infinity, denormals are
// kept. The vector code of the operators rounds to the same bits. Plain values.
#pragma once

#include <bit>
#include <cstdint>

namespace plumb {

/// The upper half of a float: 8 bits of exponent, 7 of fraction.
struct Bf16 {
  std::uint16_t bits = 0;
};

/// IEEE binary16: 5 bits of exponent, 10 of fraction; largest finite value 65504.
struct Fp16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(Bf16 value) { return std::bit_cast<float>(std::uint32_t{value.bits} << 16); }

constexpr float to_float(Fp16 value) {
  const std::uint32_t sign = std::uint32_t{value.bits & 0x8000u} << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fu;
  std::uint32_t fraction = value.bits & 0x3ffu;
  if (exponent == 0x1f) {
    return std::bit_cast<float>(sign | 0x7f800000u | (fraction == 0 ? 0u : 0x400000u | (fraction << 13)));
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  }
  // A multiple of 2^-24.
  const float magnitude = static_cast<float>(fraction) * 0x1.0p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

constexpr Bf16 to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return {static_cast<std::uint16_t>((bits | 0x400000u) >> 16)};
  }
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

constexpr Fp16 to_fp16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t rounded = 0;
  if (magnitude > 0x7f800000u) {
    rounded = 0x7e00u | ((magnitude >> 13) & 0x1ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520 and more
    rounded = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // normal
    rounded = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else if (magnitude >= 0x33000000u) {  // a multiple of 2^-24 after rounding
    const std::uint32_t shift = 126u - (magnitude >> 23);
    const std::uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
    const std::uint32_t half = std::uint32_t{1} << (shift - 1);
    rounded = (fraction + half - 1u + ((fraction >> shift) & 1u)) >> shift;
  }
  return {static_cast<std::uint16_t>(sign | rounded)};
}

}  // namespace plumb

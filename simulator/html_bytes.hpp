// SPDX-License-Identifier: Apache-2.0
//
// html_bytes.hpp (private): numbers as bytes for a script in a page, and bytes as letters.
//
// Unsigned numbers are LEB128: seven bits a byte, the lowest first, the top bit set on all but the last. Signed ones
// are zigzag: 0, -1, 1, -2, .. become 0, 1, 2, 3, ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace plumb {

class ByteWriter {
 public:
  void put(std::uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<char>((value & 0x7F) | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<char>(value));
  }
  void put_signed(std::int64_t value) {
    put(static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
  }
  void append(const ByteWriter& other) { bytes_ += other.bytes_; }
  void clear() { bytes_.clear(); }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// With padding, without line breaks.
std::string base64(std::string_view bytes);

}  // namespace plumb

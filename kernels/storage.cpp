// SPDX-License-Identifier: Apache-2.0
#include "plumb/kernels/storage.hpp"

#include <stdexcept>
#include <string>

namespace plumb {

namespace {

[[noreturn]] void refuse(Storage storage) {
  throw std::invalid_argument("storage format number " + std::to_string(static_cast<int>(storage)) +
                              " does not exist; legal: fp32, fp64, bf16, fp16");
}

}  // namespace

std::size_t bytes_per_element(Storage storage) {
  switch (storage) {
    case Storage::fp32:
      return 4;
    case Storage::fp64:
      return 8;
    case Storage::bf16:
    case Storage::fp16:
      return 2;
  }
  refuse(storage);
}

Storage gradient_storage(Storage storage) {
  switch (storage) {
    case Storage::fp32:
    case Storage::bf16:
    case Storage::fp16:
      return Storage::fp32;
    case Storage::fp64:
      return Storage::fp64;
  }
  refuse(storage);
}

std::string_view to_string(Storage storage) {
  switch (storage) {
    case Storage::fp32:
      return "fp32";
    case Storage::fp64:
      return "fp64";
    case Storage::bf16:
      return "bf16";
    case Storage::fp16:
      return "fp16";
  }
  refuse(storage);
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "train_lm/checkpoint.hpp"

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plumb/schedule/error.hpp"
#include "plumb/schedule/json_text.hpp"
#include "train_lm/durable_file.hpp"

namespace plumb::lm {

namespace {

using Json = nlohmann::json;

// A part: 8 bytes magic, 8 bytes length of the header (little-endian), the header (JSON: name, type, shape and offset
// of each tensor), then the elements. Little-endian machines only, like the elements.
static_assert(std::endian::native == std::endian::little);
constexpr std::string_view kMagic = "PLUMBTL1";
constexpr std::size_t kPrefixBytes = 16;

std::string_view type_name(const at::Tensor& tensor) { return tensor.scalar_type() == at::kDouble ? "fp64" : "fp32"; }

// Where a tensor lies within a part that has been read.
struct Stored {
  std::string type;
  std::vector<std::int64_t> shape;
  const char* data = nullptr;
};

using StoredTensors = std::map<std::string, Stored>;

[[noreturn]] void refuse(const std::string& path, std::string_view why) {
  throw InputError(fmt::format("checkpoint {}: {}", path, why));
}

std::string read_part(const std::string& path, const PartFile& part) {
  std::error_code code;
  if (std::filesystem::exists(path, code) && !std::filesystem::is_regular_file(path, code)) {
    refuse(path, "not a regular file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    refuse(path, "missing, although the manifest lists it");
  }
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (bytes.size() != part.size_bytes) {
    refuse(path, fmt::format("damaged: {} bytes instead of {}", bytes.size(), part.size_bytes));
  }
  if (checksum(bytes) != part.checksum) {
    refuse(path, "damaged: the checksum differs");
  }
  return bytes;
}

// The checksum has been verified, so what is wrong here was written wrong: a foreign file.
void index_part(const std::string& path, const std::string& bytes, StoredTensors& stored) {
  std::uint64_t header_bytes = 0;
  if (bytes.size() >= kPrefixBytes) {
    std::memcpy(&header_bytes, bytes.data() + kMagic.size(), sizeof(header_bytes));
  }
  if (!bytes.starts_with(kMagic) || header_bytes > bytes.size() - kPrefixBytes) {
    refuse(path, "not a part of a checkpoint");
  }
  const std::size_t elements = kPrefixBytes + header_bytes;
  require_plain_json(std::string_view(bytes).substr(kPrefixBytes, header_bytes), "checkpoint part " + path);
  try {
    for (const Json& entry :
         Json::parse(bytes.begin() + kPrefixBytes, bytes.begin() + static_cast<std::ptrdiff_t>(elements))) {
      Stored tensor;
      tensor.type = entry.at("type").get<std::string>();
      tensor.shape = entry.at("shape").get<std::vector<std::int64_t>>();
      const auto offset = entry.at("offset").get<std::uint64_t>();
      std::uint64_t size = tensor.type == "fp64" ? 8 : 4;
      for (const std::int64_t extent : tensor.shape) {
        size *= static_cast<std::uint64_t>(extent);
      }
      if (offset > bytes.size() - elements || size > bytes.size() - elements - offset) {
        refuse(path, "a tensor lies outside the file");
      }
      tensor.data = bytes.data() + elements + offset;
      stored.emplace(entry.at("name").get<std::string>(), std::move(tensor));
    }
  } catch (const Json::exception&) {
    refuse(path, "the header is not what this program writes");
  }
}

}  // namespace

std::uint64_t checksum(std::span<const char> bytes, std::uint64_t start) {
  std::uint64_t value = start;
  for (const char c : bytes) {
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return value;
}

PartFile write_part(const std::string& folder, std::span<const NamedTensor> tensors) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (!std::filesystem::is_directory(folder, code)) {
    throw InputError(fmt::format("checkpoint {}: cannot make this folder", folder));
  }
  Json header = Json::array();
  std::uint64_t size = 0;
  for (const auto& [name, tensor] : tensors) {
    header.push_back({{"name", name}, {"type", type_name(tensor)}, {"shape", tensor.sizes().vec()}, {"offset", size}});
    size += tensor.nbytes();
  }
  const std::string header_text = header.dump();
  const auto header_bytes = static_cast<std::uint64_t>(header_text.size());
  std::string bytes(kMagic);
  bytes.reserve(kPrefixBytes + header_bytes + size);
  bytes.append(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  bytes += header_text;
  for (const auto& [name, tensor] : tensors) {
    bytes.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  }
  PartFile part;
  part.size_bytes = bytes.size();
  part.checksum = checksum(bytes);
  // Named after its content: an equal name is an equal file, and the parts of the current checkpoint stay as they are.
  part.file = fmt::format("{:016x}{}", part.checksum, kPartSuffix);
  write_durably(folder + "/" + part.file, bytes);
  return part;
}

void load_tensors(const std::string& folder, std::span<NamedTensor> tensors) {
  const std::vector<PartFile> parts = read_parts(folder);
  std::vector<std::string> contents;
  contents.reserve(parts.size());
  StoredTensors stored;
  for (const PartFile& part : parts) {
    const std::string path = folder + "/" + part.file;
    contents.push_back(read_part(path, part));
    index_part(path, contents.back(), stored);
  }
  for (const auto& [name, tensor] : tensors) {
    const auto found = stored.find(name);
    if (found == stored.end()) {
      refuse(folder, fmt::format("no tensor named {}", name));
    }
    if (found->second.type != type_name(tensor) || found->second.shape != tensor.sizes().vec()) {
      refuse(folder, fmt::format("tensor {} is {} [{}], not {} [{}]", name, found->second.type,
                                 fmt::join(found->second.shape, ", "), type_name(tensor),
                                 fmt::join(tensor.sizes().vec(), ", ")));
    }
  }
  for (auto& [name, tensor] : tensors) {
    std::memcpy(tensor.data_ptr(), stored.at(name).data, tensor.nbytes());
  }
}

}  // namespace plumb::lm

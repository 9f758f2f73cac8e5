// SPDX-License-Identifier: Apache-2.0
#include "start_check.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "plumb/runtime/run_error.hpp"

namespace plumb {
namespace {

void append(std::string& text, const std::string& word) {
  text += std::to_string(word.size());
  text += ':';
  text += word;
}

// A peer of another build may send anything; what does not parse ends the list and then differs.
bool take(const std::string& text, std::size_t& position, std::string& word) {
  const std::size_t colon = text.find(':', position);
  if (colon == std::string::npos || colon == position || colon - position > 9) return false;
  std::size_t size = 0;
  for (std::size_t i = position; i < colon; ++i) {
    if (text[i] < '0' || text[i] > '9') return false;
    size = size * 10 + static_cast<std::size_t>(text[i] - '0');
  }
  if (size > text.size() - colon - 1) return false;
  word = text.substr(colon + 1, size);
  position = colon + 1 + size;
  return true;
}

}  // namespace

Fingerprint start_fingerprint(const Program& program, const SlotShape& shape, const ExecutorOptions& options) {
  Fingerprint all{{"tokens", std::to_string(shape.tokens)},
                  {"hidden", std::to_string(shape.width)},
                  {"dtype", std::string(to_string(shape.storage))},
                  {"verified messages", options.verify_messages ? "on" : "off"}};
  const Fingerprint program_fields = fingerprint(program);
  all.insert(all.end(), program_fields.begin(), program_fields.end());
  return all;
}

std::string pack(const Fingerprint& fingerprint) {
  std::string text;
  for (const auto& [field, value] : fingerprint) {
    append(text, field);
    append(text, value);
  }
  return text;
}

Fingerprint unpack(const std::string& text) {
  Fingerprint fields;
  std::size_t position = 0;
  std::string field;
  std::string value;
  while (take(text, position, field) && take(text, position, value))
    fields.emplace_back(field, value);
  return fields;
}

void compare_programs(RankId rank, const Fingerprint& mine, ControlPlane& control, std::chrono::nanoseconds limit) {
  const std::vector<std::string> all = control.exchange(pack(mine), limit);
  const auto votes = [&](const std::string& text) { return std::count(all.begin(), all.end(), text); };
  // The most frequent one is right; the lowest rank's where two are equally frequent.
  std::size_t right = 0;
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (votes(all[i]) > votes(all[right])) right = i;
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == all[right]) continue;
    const auto difference = first_difference(unpack(all[right]), unpack(all[i]));
    throw PlanMismatch(rank, RankId(i), difference ? difference->field : "program",
                       difference ? difference->mine : "as on most ranks", difference ? difference->theirs : "another");
  }
}

}  // namespace plumb

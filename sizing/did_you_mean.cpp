// SPDX-License-Identifier: Apache-2.0
#include "did_you_mean.hpp"

#include <algorithm>
#include <cctype>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace plumb {
namespace {

constexpr std::size_t longest_word = 64;

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Letters to insert, remove or change.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j)
    row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

bool begins_alike(std::string_view a, std::string_view b) {
  const std::size_t length = std::min(a.size(), b.size());
  return length >= 3 && std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(length), b.begin(),
                                   [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known) {
  if (word.empty() || word.size() > longest_word) return "";
  std::string_view nearest;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const std::string_view candidate : known) {
    if (candidate.empty()) continue;
    std::size_t letters = distance(word, candidate);
    // A word that goes on as another does is as near as two letters.
    if (begins_alike(word, candidate)) letters = std::min<std::size_t>(letters, 2);
    if (letters < least && letters <= std::max<std::size_t>(2, candidate.size() / 3)) {
      least = letters;
      nearest = candidate;
    }
  }
  return nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest);
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "output.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <fmt/format.h>
#include <unistd.h>

#include "exit.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb::cli {

std::string Table::text() const {
  std::vector<std::size_t> widths;
  std::vector<bool> numeric;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    widths.resize(std::max(widths.size(), rows_[r].size()), 0);
    numeric.resize(widths.size(), true);
    for (std::size_t i = 0; i < rows_[r].size(); ++i) {
      const std::string& cell = rows_[r][i];
      widths[i] = std::max(widths[i], cell.size());
      numeric[i] =
          numeric[i] && (r == 0 || cell.empty() || std::string_view("0123456789+-").find(cell[0]) != cell.npos);
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? "" : "  ";
      line += numeric[i] && i > 0 ? fmt::format("{:>{}}", row[i], widths[i]) : fmt::format("{:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

void write_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  const auto fail = [&](std::string_view what) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw EnvironmentError(fmt::format("cannot write {}: {}", path, what));
  };
  if (std::filesystem::is_directory(path)) {
    throw EnvironmentError(fmt::format("cannot write {}: it is a directory", path));
  }
  std::ofstream file(temporary, std::ios::binary);
  if (!file) {
    fail("the directory does not exist or may not be written");
  }
  write(file);
  file.close();
  if (!file) {
    fail("the disk refused it");
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) {
    fail(error.message());
  }
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string read_input(const std::string& path, std::size_t max_bytes) {
  std::ifstream file;
  std::error_code error;
  if (path != "-") {
    if (std::filesystem::is_directory(path, error)) {
      throw InputError(fmt::format("{} is a directory, a file is needed", path));
    }
    file.open(path, std::ios::binary);
    if (!file) {
      throw InputError(fmt::format("cannot read {}", path));
    }
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string text;
  std::array<char, 1 << 16> buffer;
  while (in.read(buffer.data(), buffer.size()) || in.gcount() > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > max_bytes) {
      throw InputError(fmt::format("{} is larger than {}", path, bytes_text(static_cast<double>(max_bytes))));
    }
  }
  return text;
}

}  // namespace plumb::cli

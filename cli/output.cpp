// SPDX-License-Identifier: Apache-2.0
#include "output.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <utility>

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
          numeric[i] && (r == 0 || cell.empty() || std::string_view("0123456789+-<").find(cell[0]) != cell.npos);
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

namespace {

[[noreturn]] void cannot_write(const std::string& path, std::string_view what) {
  throw EnvironmentError(fmt::format("cannot write {}: {}", path, what));
}

// A pipe or device is written as it is: replacing it by a file would break whoever reads it.
void write_in_place(const std::string& path, const std::function<void(std::ostream&)>& write) {
  std::ofstream file(path, std::ios::binary);
  if (!file) {
    cannot_write(path, "it cannot be opened");
  }
  write(file);
  file.close();
  if (!file) {
    cannot_write(path, "it refused the data");
  }
}

// Removed at the end, unless it has got its name by then.
class Temporary {
 public:
  explicit Temporary(std::string path) : path_(std::move(path)) {}
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

void write_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  ignore_file_size_signal();
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);  // follows links
  if (std::filesystem::is_directory(status)) {
    cannot_write(path, "it is a directory");
  }
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return write_in_place(path, write);
  }
  std::filesystem::path target = path;
  if (std::filesystem::exists(status)) {
    target = std::filesystem::canonical(path);
  } else if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, error))) {
    target = target.parent_path() / std::filesystem::read_symlink(path);  // a link to a file yet to be made
  }
  const Temporary temporary(fmt::format("{}.{}.tmp", target.string(), getpid()));
  std::ofstream file(temporary.path(), std::ios::binary);
  if (!file) {
    cannot_write(path, "the directory does not exist or may not be written");
  }
  errno = 0;
  write(file);
  file.close();
  if (!file) {
    cannot_write(path, errno == EFBIG ? "a file may not be that large here" : "the disk refused it");
  }
  std::filesystem::rename(temporary.path(), target, error);
  if (error) {
    cannot_write(path, error.message());
  }
}

namespace {

// What a path leads to when it is written; a link may lead to a file yet to be made.
std::filesystem::path written_place(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code) && std::filesystem::is_symlink(path, code))
    return path.parent_path() / std::filesystem::read_symlink(path, code);
  return path;
}

// A terminal or the null device may be written twice: nothing is lost that was to be kept.
bool keeps_nothing(const std::string& path) {
  std::error_code code;
  return std::filesystem::is_character_file(path, code);
}

}  // namespace

void require_different(const OutputFile& a, const OutputFile& b) {
  if (a.path.empty() || b.path.empty()) return;
  std::error_code code;
  // Neither need exist yet, and where nothing exists a relative path stays relative.
  const auto place = [&](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(written_place(path), code), code);
  };
  const bool same = std::filesystem::equivalent(a.path, b.path, code) || place(a.path) == place(b.path);
  if (!same || keeps_nothing(a.path)) return;
  throw InputError(fmt::format("{} and {} name the same file, {}: give each its own", a.option, b.option, b.path));
}

void require_files_apart(const std::vector<OutputFile>& outputs, const std::vector<OutputFile>& inputs, bool json) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t k = i + 1; k < outputs.size(); ++k)
      require_different(outputs[i], outputs[k]);
    for (const OutputFile& input : inputs)
      require_different(input, outputs[i]);
    std::error_code code;
    const std::string& path = outputs[i].path;
    if (json && !path.empty() && !keeps_nothing(path) && std::filesystem::equivalent(path, "/dev/stdout", code)) {
      throw InputError(
          fmt::format("{} names standard output, where --json prints its object: give it a file", outputs[i].option));
    }
  }
}

void ignore_file_size_signal() { std::signal(SIGXFSZ, SIG_IGN); }

void write_output(const std::string& path, std::string_view text) {
  if (path.empty() || path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    write_file(path, [&](std::ostream& out) { out << text; });
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

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
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

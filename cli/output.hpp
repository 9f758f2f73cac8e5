// SPDX-License-Identifier: Apache-2.0
//
// output.hpp (private): tables for people, and files that are never left half-written.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace plumb::cli {

// Columns of numbers are right-aligned, the first column and words left-aligned; two blanks between columns.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// A regular or new file is written beside itself and renamed, and nothing is left beside it when that fails or `write`
// throws; a link is followed; a pipe or device is written in place. Throws EnvironmentError naming the path.
void write_file(const std::string& path, const std::function<void(std::ostream&)>& write);

// Throws InputError when two options name the same file, by whatever path: the second would overwrite the first.
struct OutputFile {
  std::string_view option;
  std::string path;  // empty: not asked for
};
void require_different(const OutputFile& a, const OutputFile& b);

// The same for each of `outputs` against the others and against what is read; with `json` none of them may be standard
// output, which then holds one JSON object. To be asked before anything is written.
void require_files_apart(const std::vector<OutputFile>& outputs, const std::vector<OutputFile>& inputs, bool json);

// A write beyond `ulimit -f` then fails like one to a full disk instead of ending the process. write_file does it too.
void ignore_file_size_signal();

// write_file for a text; an empty path or "-" is stdout.
void write_output(const std::string& path, std::string_view text);

// 58720256 -> "56.0 MiB".
std::string bytes_text(double bytes);

// A JSON string, quotes included.
std::string json_quoted(std::string_view text);

// Of a schedule or program to read.
inline constexpr std::size_t max_schedule_bytes = std::size_t{512} << 20;

// The whole of `path`, or of stdin for "-". Throws InputError when it cannot be read or exceeds `max_bytes`.
std::string read_input(const std::string& path, std::size_t max_bytes);

}  // namespace plumb::cli

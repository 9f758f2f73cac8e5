// SPDX-License-Identifier: Apache-2.0
#include "size_state.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exit.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb::cli {
namespace {

constexpr std::string_view header_begin = "{\"plumb_size\":1,\"digest\":\"";

std::string line_of(const std::string& name, const Outcome& o) {
  return fmt::format(
      "{{\"candidate\":\"{}\",\"fits\":{},\"pipeline_us\":{},\"step_end_us\":{},\"peak_bytes\":{},\"peak_rank\":{},"
      "\"network_bytes\":{},\"bubble\":{},\"exposed_us\":{}}}\n",
      name, o.fits, o.pipeline_us, o.step_end_us, o.peak_bytes, o.peak_rank, o.network_bytes, o.bubble, o.exposed_us);
}

// Reads exactly what line_of() writes.
class LineReader {
 public:
  explicit LineReader(std::string_view text) : rest_(text) {}

  bool literal(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  bool text_until(char end, std::string& to) {
    const std::size_t at = rest_.find(end);
    if (at == std::string_view::npos) return false;
    to = rest_.substr(0, at);
    rest_.remove_prefix(at);
    return true;
  }
  template <class Number>
  bool number(std::string_view key, Number& to) {
    if (!literal(key)) return false;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), to);
    if (error != std::errc()) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return true;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// "pp16 vp2 ...": the first word of a candidate's name.
int ranks_of(std::string_view name) {
  int pp = 0;
  if (name.starts_with("pp")) std::from_chars(name.data() + 2, name.data() + name.size(), pp);
  return pp;
}

// Numbers that a simulation can give; not so for nan.
bool is_possible(std::string_view name, const Outcome& o) {
  constexpr double most_us = 1e15;  // three decades
  constexpr double most_memory = 1e18;
  constexpr double most_network = 1e24;
  const auto within = [](double value, double least, double most) { return value >= least && value <= most; };
  if (o.peak_rank < 0 || o.peak_rank >= ranks_of(name) || !within(o.peak_bytes, 1, most_memory)) return false;
  // Of what does not fit often no more is said.
  const Outcome memory_only{.peak_bytes = o.peak_bytes, .peak_rank = o.peak_rank};
  return o == memory_only ||
         (o.pipeline_us > 0 && o.pipeline_us <= most_us && o.step_end_us > 0 && o.step_end_us <= most_us &&
          within(o.network_bytes, 0, most_network) && within(o.bubble, 0, 1) && within(o.exposed_us, 0, o.pipeline_us));
}

bool read_line(std::string_view line, std::string& name, Outcome& o) {
  LineReader in(line);
  if (!in.literal("{\"candidate\":\"") || !in.text_until('"', name) || !in.literal("\",\"fits\":")) return false;
  o.fits = in.literal("true");
  if (!o.fits && !in.literal("false")) return false;
  return in.number(",\"pipeline_us\":", o.pipeline_us) && in.number(",\"step_end_us\":", o.step_end_us) &&
         in.number(",\"peak_bytes\":", o.peak_bytes) && in.number(",\"peak_rank\":", o.peak_rank) &&
         in.number(",\"network_bytes\":", o.network_bytes) && in.number(",\"bubble\":", o.bubble) &&
         in.number(",\"exposed_us\":", o.exposed_us) && in.literal("}") && in.empty() && is_possible(name, o);
}

// One begins with the other.
bool could_become(std::string_view text, std::string_view whole) {
  return text.substr(0, whole.size()) == whole.substr(0, text.size());
}

std::string whole(int file, const std::string& path) {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(file, buffer, sizeof buffer);
    if (got == 0) return text;
    if (got < 0) throw InputError(fmt::format("--state {}: cannot be read: {}", path, std::strerror(errno)));
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace

SizeState::SizeState(const std::string& path, const std::string& digest, const std::string& about) : path_(path) {
  constexpr int permissions = 0644;
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, permissions);
  if (file_ < 0 && errno == EISDIR) throw InputError(fmt::format("--state {}: is a directory, name a file", path));
  if (file_ < 0) throw EnvironmentError(fmt::format("--state {}: cannot be written: {}", path, std::strerror(errno)));
  try {
    struct stat status {};
    if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) {
      throw InputError(fmt::format("--state {}: is no file that can be appended to and read again", path));
    }
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      throw EnvironmentError(fmt::format("--state {}: is in use by another plumb size", path));
    }
    if (!read(digest)) {
      write(fmt::format("{}{}\",\"about\":\"{}\"}}\n", header_begin, digest, about));
    }
  } catch (...) {
    ::close(file_);
    throw;
  }
}

SizeState::~SizeState() { ::close(file_); }

bool SizeState::read(const std::string& digest) {
  const std::string text = whole(file_, path_);
  std::size_t at = 0;
  for (int line = 1; at < text.size(); ++line) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos && (line > 1 || could_become(text, std::string(header_begin) + digest))) {
      // The run before was cut off in the midst of a line.
      if (::ftruncate(file_, static_cast<off_t>(at)) != 0) {
        throw EnvironmentError(fmt::format("--state {}: cannot be shortened: {}", path_, std::strerror(errno)));
      }
      return line > 1;
    }
    const std::string_view here(text.data() + at, end == std::string::npos ? text.size() - at : end - at);
    at += here.size() + 1;
    if (line == 1) {
      if (!here.starts_with(header_begin) || end == std::string::npos) {
        throw InputError(
            fmt::format("--state {}: line 1 is not the one with which plumb size begins such a file; name "
                        "one that does not exist yet",
                        path_));
      }
      const std::string_view found = here.substr(header_begin.size(), digest.size());
      if (found != digest) {
        throw InputError(
            fmt::format("--state {}: is of another request ({}, this one is {}): model, cluster, devices, batch, "
                        "sequence and memory must be the same; take another file",
                        path_, found, digest));
      }
      continue;
    }
    std::string name;
    Outcome outcome;
    if (!read_line(here, name, outcome)) {
      throw InputError(fmt::format("--state {}: line {} is not one that plumb size wrote", path_, line));
    }
    known_.emplace(std::move(name), outcome);
  }
  return !text.empty();
}

std::optional<Outcome> SizeState::recall(const Candidate& candidate) const {
  const auto found = known_.find(to_string(candidate));
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void SizeState::record(std::span<const Evaluated> fresh) {
  std::string text;
  for (const Evaluated& one : fresh)
    text += line_of(to_string(one.candidate), one.outcome);
  write(text);
}

void SizeState::write(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t got = ::write(file_, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw EnvironmentError(fmt::format("--state {}: cannot be written: {}", path_, std::strerror(errno)));
    done += static_cast<std::size_t>(got);
  }
}

}  // namespace plumb::cli

// SPDX-License-Identifier: Apache-2.0
//
// size_state.hpp (private): what `plumb size --state FILE` has simulated so far: JSON lines, only ever appended to.
//
// The first line names the request by its digest; each other one is a candidate with its outcome. A last line that was
// cut off is dropped, be it the first. The file is locked while it is in use.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "plumb/sizing/search.hpp"

namespace plumb::cli {

class SizeState {
 public:
  // `about` is for people: plain words. Throws InputError for a file that is of another request or none
  // of ours, with the line; EnvironmentError when it cannot be written or another process uses it.
  SizeState(const std::string& path, const std::string& digest, const std::string& about);
  ~SizeState();
  SizeState(const SizeState&) = delete;
  SizeState& operator=(const SizeState&) = delete;

  std::size_t size() const { return known_.size(); }
  std::optional<Outcome> recall(const Candidate& candidate) const;
  // Throws EnvironmentError.
  void record(std::span<const Evaluated> fresh);

 private:
  // Whether there is a first line.
  bool read(const std::string& digest);
  void write(const std::string& text);

  std::string path_;
  int file_ = -1;
  std::map<std::string, Outcome> known_;
};

}  // namespace plumb::cli

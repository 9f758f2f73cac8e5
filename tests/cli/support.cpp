// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <sys/wait.h>
#include <unistd.h>

#include "support/catch.hpp"

namespace plumb::test {

namespace {

// One directory per test process, removed at its end.
class Scratch {
 public:
  Scratch() : path_(std::filesystem::temp_directory_path() / ("plumb-cli-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

const Scratch& scratch() {
  static const Scratch directory;
  return directory;
}

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::string Run::last_error_line() const {
  const std::string text = err.substr(0, err.find_last_not_of('\n') + 1);
  const std::size_t start = text.find_last_of('\n');
  return start == std::string::npos ? text : text.substr(start + 1);
}

std::string Run::reason() const { return last_error_line().substr(0, last_error_line().find(':')); }

Run run_plumb(const std::string& arguments, const std::string& input) {
  const std::string in = scratch_file("stdin", input);
  const std::string command =
      "cd " + scratch().path() + " && " PLUMB_COMMAND " " + arguments + " <stdin >stdout 2>stderr";
  const int status = std::system(command.c_str());
  if (!WIFEXITED(status)) {
    throw std::runtime_error("plumb did not exit: " + arguments);
  }
  return {WEXITSTATUS(status), slurp(scratch().file("stdout")), slurp(scratch().file("stderr"))};
}

std::string fine(const std::string& arguments) {
  const Run run = run_plumb(arguments);
  INFO(arguments << "\n" << run.err);
  REQUIRE(run.exit_code == 0);
  REQUIRE(run.err.empty());
  return run.out;
}

std::string scratch_file(const std::string& name, const std::string& content) {
  std::ofstream(scratch().file(name), std::ios::binary) << content;
  return name;
}

void require_refused(const std::string& arguments, const std::string& names, const std::string& input) {
  const Run run = run_plumb(arguments, input);
  INFO(arguments << "\n" << run.err);
  CHECK(run.exit_code == 2);
  CHECK(run.out.empty());
  CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
  CHECK((run.reason() == "usage" || run.reason() == "config"));
  CHECK(run.err.find(names) != std::string::npos);
}

}  // namespace plumb::test

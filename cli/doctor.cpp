// SPDX-License-Identifier: Apache-2.0
// plumb-doctor: what this build has and what this machine offers. It only looks; exit 0 unless a needed part is broken.
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "output.hpp"

#ifdef PLUMB_DOCTOR_MPI
#include <mpi.h>
#endif

namespace {

struct Finding {
  std::string part;
  std::string built_with;  // as found when this was compiled; "left out" otherwise
  std::string here;        // on this machine, now
};

std::string first_line(std::string text) { return text.substr(0, text.find_first_of("\r\n,")); }

Finding compiler() { return {"compiler", "g++ " __VERSION__, "not needed to run"}; }

Finding mpi() {
#ifdef PLUMB_DOCTOR_MPI
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);  // legal before MPI_Init
  return {"MPI", PLUMB_DOCTOR_MPI, first_line(text.data())};
#else
  return {"MPI", "left out", "-"};
#endif
}

std::string sibling(std::string_view name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return !error && std::filesystem::exists(self.parent_path() / name, error) ? fmt::format("{} is there", name)
                                                                             : fmt::format("{} is not there", name);
}

// Opened at run time, so that a machine without the library is a finding, not a failure to start.
class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {}
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (handle_ != nullptr) {
      dlclose(handle_);
    }
  }
  bool found() const { return handle_ != nullptr; }
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

std::string devices() {
  const Library driver("libcuda.so.1");
  if (!driver.found()) {
    return "no CUDA driver";
  }
  auto* init = driver.function<int(unsigned)>("cuInit");
  auto* count = driver.function<int(int*)>("cuDeviceGetCount");
  auto* name = driver.function<int(char*, int, int)>("cuDeviceGetName");
  int devices = 0;
  if (init == nullptr || count == nullptr || name == nullptr || init(0) != 0 || count(&devices) != 0) {
    return "a CUDA driver that does not start";
  }
  std::string text = fmt::format("{} device{}", devices, devices == 1 ? "" : "s");
  for (int i = 0; i < devices; ++i) {
    std::array<char, 256> buffer{};
    if (name(buffer.data(), static_cast<int>(buffer.size()), i) == 0) {
      text += fmt::format("{} {}", i == 0 ? ":" : ",", buffer.data());
    }
  }
  return text;
}

std::string nccl() {
  const Library library("libnccl.so.2");
  int version = 0;
  if (auto* get = library.found() ? library.function<int(int*)>("ncclGetVersion") : nullptr;
      get != nullptr && get(&version) == 0) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }
  return "not found";
}

std::string memory() {
  std::ifstream info("/proc/meminfo");
  std::string key;
  double kibibytes = 0;
  info >> key >> kibibytes;
  return info ? plumb::cli::bytes_text(kibibytes * 1024) : "unknown";
}

int written() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fmt::print(stderr, "config: cannot write to standard output\n");
    return 3;
  }
  return 0;
}

std::vector<Finding> look() {
  return {compiler(),
          mpi(),
          {"torch", PLUMB_DOCTOR_TORCH, sibling("plumb-train")},
          {"CUDA", PLUMB_DOCTOR_CUDA, devices()},
          {"NCCL", PLUMB_DOCTOR_NCCL, nccl()},
          {"threads", "-", fmt::format("{} hardware threads", std::thread::hardware_concurrency())},
          {"memory", "-", memory()}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view argument = argc > 1 ? argv[1] : "";
  if (argc > 2 || (argc == 2 && argument != "--json" && argument != "--help" && argument != "-h")) {
    fmt::print(stderr, "usage: plumb doctor [--json]: unexpected '{}'\n", argv[argc - 1]);
    return 2;
  }
  if (argument == "--help" || argument == "-h") {
    fmt::print("plumb doctor [--json]: what this build has and what this machine offers\n");
    return 0;
  }
  const std::vector<Finding> findings = look();
  if (argument == "--json") {
    nlohmann::ordered_json out;
    for (const Finding& finding : findings) {
      out[finding.part] = {{"built_with", finding.built_with}, {"here", finding.here}};
    }
    fmt::print("{}\n", out.dump());
    return written();
  }
  plumb::cli::Table table({"part", "built with", "here"});
  for (const Finding& finding : findings) {
    table.add({finding.part, finding.built_with, finding.here});
  }
  fmt::print("{}", table.text());
  return written();
}

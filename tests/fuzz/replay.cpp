// SPDX-License-Identifier: Apache-2.0
// replay CORPUS_DIR MUTATIONS: a fuzz target without libFuzzer. Feeds it every file of the corpus and that many
// mutations of them, always the same ones. A broken expectation aborts; the input that broke it is printed before.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <unistd.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::string current;  // for the signal handler

void print_input(int signal) {
  constexpr char head[] = "replay: broken by the input between the lines:\n--8<--\n";
  (void)!write(STDERR_FILENO, head, sizeof head - 1);
  (void)!write(STDERR_FILENO, current.data(), current.size());
  (void)!write(STDERR_FILENO, "\n--8<--\n", 8);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void feed(const std::string& input) {
  current = input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(current.data()), current.size());
}

std::vector<std::string> read_corpus(const char* directory) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& corpus) : corpus_(corpus) {}

  std::string next() {
    std::string text = corpus_[pick(corpus_.size())];
    for (std::size_t edits = 1 + pick(4); edits > 0; --edits) {
      edit(text);
    }
    return text;
  }

 private:
  std::size_t pick(std::size_t size) { return random_() % std::max<std::size_t>(size, 1); }

  char letter(const std::string& text) {
    if (pick(8) == 0) return static_cast<char>(pick(256));
    return text.empty() ? '0' : text[pick(text.size())];  // of what is there already
  }

  void edit(std::string& text) {
    const std::size_t at = pick(text.size() + 1);
    const std::string& other = corpus_[pick(corpus_.size())];
    const std::size_t from = pick(other.size() + 1);
    switch (pick(5)) {
      case 0:
        text.insert(at, 1, letter(text));
        break;
      case 1:
        if (at < text.size()) text[at] = letter(text);
        break;
      case 2:
        text.erase(at, 1 + pick(8));
        break;
      case 3:
        text.insert(at, other.substr(from, pick(24)));
        break;
      default:
        text.replace(at, 0, text.substr(at, pick(24)));
    }
    if (text.size() > 4096) text.resize(4096);
  }

  const std::vector<std::string>& corpus_;
  std::mt19937 random_{7};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: replay CORPUS_DIR MUTATIONS\n", stderr);
    return 2;
  }
  const std::vector<std::string> corpus = read_corpus(argv[1]);
  if (corpus.empty()) {
    std::fputs("config: the corpus is empty\n", stderr);
    return 2;
  }
  std::signal(SIGABRT, print_input);
  std::signal(SIGSEGV, print_input);
  for (const std::string& input : corpus) {
    feed(input);
  }
  Mutator mutator(corpus);
  const long mutations = std::atol(argv[2]);
  for (long i = 0; i < mutations; ++i) {
    feed(mutator.next());
  }
  std::printf("%zu inputs and %ld mutations\n", corpus.size(), mutations);
  return 0;
}

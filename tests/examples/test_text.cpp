// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <set>

#include <unistd.h>

#include "plumb/schedule/error.hpp"
#include "support/catch.hpp"
#include "support/refusals.hpp"
#include "train_lm/text.hpp"

using namespace plumb;
using namespace plumb::lm;

namespace {

// A file that is gone when the test is.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes)
      : path_((std::filesystem::temp_directory_path() / ("plumb-text-" + std::to_string(::getpid()))).string()) {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string refusal(const std::string& path, std::int64_t sequence) {
  return plumb::test::refusal_of([&] { Text::load(path, sequence); });
}

}  // namespace

TEST_CASE("a missing, empty, short or binary text is refused in one line", "[examples]") {
  CHECK_THAT(refusal("/nowhere/text", 8), Catch::Matchers::Contains("no such file"));
  CHECK_THAT(refusal("/", 8), Catch::Matchers::Contains("not a regular file"));
  CHECK_THAT(refusal(TemporaryFile("").path(), 8), Catch::Matchers::Contains("empty"));
  CHECK_THAT(refusal(TemporaryFile("12345678").path(), 8), Catch::Matchers::Contains("shorter than one sequence"));
  CHECK_THAT(refusal(TemporaryFile(std::string("ab\0cdefghijklmn", 15)).path(), 8),
             Catch::Matchers::Contains("binary"));
  CHECK(refusal(TemporaryFile("123456789").path(), 8).empty());
}

TEST_CASE("a batch is a pure function of seed and sequence number", "[examples]") {
  const Text text("words", "the quick brown fox jumps over the lazy dog and runs away from it");
  const TokenBatch whole = text.batch(3, 10, 4, 8);
  const TokenBatch tail = text.batch(3, 12, 2, 8);
  CHECK(std::equal(tail.inputs.begin(), tail.inputs.end(), whole.inputs.begin() + 16));
  CHECK(text.batch(3, 10, 4, 8).inputs == whole.inputs);
  CHECK(text.batch(4, 10, 4, 8).inputs != whole.inputs);
  for (std::size_t i = 0; i + 1 < 8; ++i) {
    CHECK(whole.targets[i] == whole.inputs[i + 1]);
  }
}

TEST_CASE("every place of the text can be drawn", "[examples]") {
  const Text text("letters", "abcdefghij");
  std::set<std::int64_t> first;
  for (std::uint64_t k = 0; k < 400; ++k) {
    first.insert(text.batch(0, k, 1, 4).inputs.front());
  }
  CHECK(first.size() == 6);  // a .. f: the last sequence needs the byte behind it
}

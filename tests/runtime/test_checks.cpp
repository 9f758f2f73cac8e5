// SPDX-License-Identifier: Apache-2.0
//
// The private checks of the runtime: trailers and fingerprints on their way between ranks.
#include <cstring>

#include "cache/support/programs.hpp"
#include "plumb/runtime/run_error.hpp"
#include "runtime/support/inproc_ranks.hpp"
#include "start_check.hpp"
#include "support/catch.hpp"
#include "verify_trailer.hpp"

namespace plumb::test {
namespace {

std::uint64_t checksum(std::string_view text) {
  return extend_checksum(0, {reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

}  // namespace

TEST_CASE("a checksum sees every byte, its place and the length", "[runtime]") {
  const std::string text = "the quick brown fox jumps over";
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] = static_cast<char>(other[i] ^ 1);
    CHECK(checksum(other) != checksum(text));
  }
  CHECK(checksum("abcdefgh12345678") != checksum("12345678abcdefgh"));
  CHECK(checksum(std::string(8, '\0')) != checksum(std::string(16, '\0')));
  CHECK(checksum("") != checksum(std::string(1, '\0')));
}

TEST_CASE("a trailer names the first thing that differs", "[runtime]") {
  const VerifyTrailer expected = make_trailer(5, MessageId{7}, {TransferId{3}, Microbatch{2}, Direction::forward});
  CHECK(difference(expected, expected).empty());
  VerifyTrailer got = expected;
  got.checksum = 1;
  CHECK(difference(expected, got).find("checksum") != std::string::npos);
  got.message = 8;
  CHECK(difference(expected, got) == "message 8 instead of 7");
  got.transfer = 4;
  CHECK(difference(expected, got) == "transfer 4 instead of 3");
  got.microbatch = 0;
  CHECK(difference(expected, got) == "microbatch 0 instead of 2");
  got.direction = 1;
  CHECK(difference(expected, got) == "a backward message instead of a forward one");
  got.step = 4;
  CHECK(difference(expected, got) == "step 4 instead of 5");
}

TEST_CASE("a fingerprint survives the way between ranks, whatever is in it", "[runtime]") {
  const Fingerprint fields{{"a", "1"}, {"", ""}, {"12:x", "7:9:"}, {"line\nbreak", std::string("\0nul", 4)}};
  CHECK(unpack(pack(fields)) == fields);
  CHECK(unpack("").empty());
  CHECK(unpack("junk").empty());
  CHECK(unpack("1:a999:b").empty());
  CHECK(unpack("99999999999:a").empty());
  CHECK(unpack("1:a1:b1:c") == Fingerprint{{"a", "b"}});
}

TEST_CASE("the odd rank is the one that differs from most, or from the lowest where none is most", "[runtime]") {
  const auto odd_of = [](const std::vector<std::string>& values) {
    std::vector<int> odd(values.size(), -1);
    on_all_ranks(static_cast<int>(values.size()), [&](const RankPlace& place) {
      try {
        compare_programs(place.rank, {{"policy", values[place.rank.index()]}}, place.control, std::chrono::seconds(60));
      } catch (const PlanMismatch& error) {
        odd[place.rank.index()] = error.odd().value;
        must(error.field() == "policy", "the field is named");
        must(error.odd_value() == values[error.odd().index()], "the odd value is named");
      }
    });
    for (const int each : odd)
      CHECK(each == odd.front());
    return odd.front();
  };
  CHECK(odd_of({"a", "a", "a"}) == -1);
  CHECK(odd_of({"a", "b", "a"}) == 1);
  CHECK(odd_of({"b", "a", "a"}) == 0);
  CHECK(odd_of({"a", "b"}) == 1);
  CHECK(odd_of({"c", "a", "b", "a"}) == 0);
}

TEST_CASE("a start fingerprint holds sizes and options before the program", "[runtime]") {
  const Program program = small_program(Policy::cached);
  ExecutorOptions options;
  const Fingerprint plain = start_fingerprint(program, {4, 8, Storage::fp32}, options);
  options.verify_messages = true;
  const auto by_option = first_difference(plain, start_fingerprint(program, {4, 8, Storage::fp32}, options));
  REQUIRE(by_option);
  CHECK(by_option->field == "verified messages");
  const auto by_type = first_difference(plain, start_fingerprint(program, {4, 8, Storage::fp64}, {}));
  REQUIRE(by_type);
  CHECK(by_type->field == "dtype");
  CHECK_FALSE(first_difference(plain, start_fingerprint(program, {4, 8, Storage::fp32}, {})));
}

}  // namespace plumb::test

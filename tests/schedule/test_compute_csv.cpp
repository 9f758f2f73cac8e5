// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "plumb/schedule/check.hpp"
#include "plumb/schedule/compute_csv.hpp"
#include "plumb/schedule/generators.hpp"
#include "support.hpp"

namespace plumb {
namespace {

using Catch::Matchers::Contains;
using test::damaged;
using test::input_error_of;

std::string csv_refusal(std::string_view text, std::optional<Layout> layout = std::nullopt) {
  const std::string error = input_error_of([&] { (void)read_compute_csv(text, "plan.csv", layout); });
  CHECK_THAT(error, Catch::Matchers::StartsWith("plan.csv: "));
  return error;
}

TEST_CASE("a schedule written as CSV is read back with its layout", "[schedule]") {
  for (const Placement placement : {Placement::loop, Placement::vee}) {
    for (int pp = 1; pp <= 5; ++pp) {
      for (int vp = 1; vp <= 3; ++vp) {
        for (int m = 1; m <= 6; ++m) {
          for (const bool forward_only : {false, true}) {
            const Schedule schedule = breadth_first(Layout(pp, vp, m, placement), forward_only);
            const Schedule back = read_compute_csv(write_compute_csv(schedule), "x", schedule.layout);
            REQUIRE(back.ranks == schedule.ranks);
            REQUIRE(back.layout == schedule.layout);
            REQUIRE(back.forward_only == forward_only);
            const Schedule inferred = read_compute_csv(write_compute_csv(schedule), "x");
            REQUIRE(inferred.ranks == schedule.ranks);
            // With one rank or one stage both placements are the same, and loop is what is inferred.
            const bool told_apart = pp > 1 && vp > 1;
            REQUIRE(inferred.layout.placement() == (told_apart ? placement : Placement::loop));
            REQUIRE(check_schedule(inferred).ok());
          }
        }
      }
    }
  }
}

TEST_CASE("the CSV has a row per rank with CRLF and no blanks", "[schedule]") {
  CHECK(write_compute_csv(one_f_one_b(Layout(2, 1, 2))) == "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n");
}

TEST_CASE("blanks and quotes and either line end are read", "[schedule]") {
  const Schedule expected = one_f_one_b(Layout(2, 1, 2));
  for (const char* text : {
           "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
           "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1",
           "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\n",
           "0F0,0F1,,,0B0,0B1\r\n,1F0,1B0,1F1,1B1,\r\n",
           "\"0F0\",0F1,\"\",0B0,0B1\n 1F0 ,\t1B0, ,1F1,\"1B1 \"\n",
       }) {
    const Schedule schedule = read_compute_csv(text, "x");
    CHECK(schedule.ranks == expected.ranks);
    CHECK(schedule.layout == expected.layout);
    CHECK(schedule.name == "x");
  }
}

TEST_CASE("a row of one empty cell is a rank without actions", "[schedule]") {
  for (const char* empty : {"\"\"\r\n", "\r\n", ",,\r\n"}) {
    const std::string text = std::string("0F0,0B0\r\n") + empty + "2F0,2B0\r\n3F0,3B0\r\n";
    const Schedule schedule = read_compute_csv(text, "x");
    CHECK(schedule.layout == Layout(4, 1, 1));
    CHECK(schedule.ranks[1].empty());
    const ScheduleCheck check = check_schedule(schedule);
    REQUIRE(check.faults.size() == 1);
    CHECK(check.faults[0].rank == RankId(1));
  }
  CHECK_THAT(csv_refusal("0F0,0B0\r\n1F0,1B0\r\n\r\n"),
             Contains("3 rows cannot share 2 chunks") && Contains("row 3 is empty"));
}

TEST_CASE("a cell that a lenient reader would guess at is refused with row and column and token", "[schedule]") {
  for (const char* trap : {"0F0junk",
                           "2BW0",
                           "0WAIT_SEND_F0",
                           "0F0;1F0",
                           "1I2.5",
                           "0F 0",
                           "00F07",
                           "0F\xd9\xa3",
                           "\xd9\xa0"
                           "F0",
                           "()OVERLAP_F_B",
                           "-1OVERLAP_F_B",
                           "F0",
                           "-1F0",
                           "0f0",
                           "0SEND",
                           "None",
                           "0F",
                           "(0F7;7B3) OVERLAP_F_B",
                           "(0F7; 7B3)OVERLAP_F_B",
                           "(0SEND_F0;2RECV_F0)BATCH_P2P",
                           "0SEND_F0",
                           "1UNSHARD",
                           "\"0F0",
                           "'0F0'"}) {
    CAPTURE(trap);
    const std::string error = csv_refusal(std::string("0F0,0B0\r\n1F0,,") + trap + ",1B0\r\n");
    CHECK_THAT(error, Contains("row 2 (rank 1), column 3: "));
  }
  CHECK_THAT(csv_refusal("0F0,0F0junk\n"), Contains("\"0F0junk\""));
}

TEST_CASE("a file that is not a plain CSV is refused", "[schedule]") {
  CHECK_THAT(csv_refusal(""), Contains("empty"));
  CHECK_THAT(csv_refusal("\n"), Contains("no computation at all"));
  CHECK_THAT(csv_refusal(",,,\r\n,,\r\n"), Contains("no computation at all"));
  CHECK_THAT(csv_refusal("\xef\xbb\xbf"
                         "0F0,0B0\n"),
             Contains("byte order mark"));
  CHECK_THAT(csv_refusal(std::string_view("\xff\xfe"
                                          "0\0F\0",
                                          6)),
             Contains("byte order mark"));
  CHECK_THAT(csv_refusal(std::string_view("0F0\0,0B0\n", 9)), Contains("\\x00"));
  CHECK_THAT(csv_refusal("0F0,0B0\r1F0,1B0\r"), Contains("row 1 (rank 0), column 2") && Contains("carriage return"));
  CHECK_THAT(csv_refusal("0F0,\"0B0\n1F0\"\n"), Contains("row 1 (rank 0), column 2") && Contains("never closed"));
  CHECK_THAT(csv_refusal("\"0F0\"x,0B0\n"), Contains("must follow the closing quote"));
  CHECK_THAT(csv_refusal("\"0F\"\"0\",0B0\n"), Contains("must follow the closing quote"));
  CHECK_THAT(csv_refusal("rank,0F0\n"), Contains("row 1 (rank 0), column 1: token \"rank\""));
}

TEST_CASE("rows that fit no placement are refused with the cells that break each", "[schedule]") {
  CHECK_THAT(csv_refusal("0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0\n"), Contains("fits neither placement") &&
                                                                    Contains("placement loop runs chunk 1 on rank 1") &&
                                                                    Contains("placement vee runs chunk 1 on rank 1"));
  CHECK_THAT(csv_refusal("0F0,0B0\n"
                         "1F0,1B0\n"
                         "4F0,4B0\n"),
             Contains("3 rows cannot share 5 chunks") && Contains("is a row missing?"));
  CHECK_THAT(csv_refusal("65535F0\n"), Contains("V (virtual stages per rank) is 65536"));
  CHECK_THAT(csv_refusal("0F0,,1024F0\n"), Contains("row 1 (rank 0), column 3: 1024F0") && Contains("1..1024"));
  CHECK_THAT(csv_refusal("0F0\n2F0\n"), Contains("row 2 (rank 1), column 1: 2F0: 2 rows cannot share 3 chunks"));
}

TEST_CASE("rows that fit no placement are read on the nearer one where that is asked for", "[schedule]") {
  const auto read = [](std::string_view text, CsvDialect dialect = CsvDialect::current) {
    return read_compute_csv(text, "x", std::nullopt, dialect, nullptr, CsvFit::nearest);
  };
  CHECK(read("0F0,1F0\n2F0,3F0\n").layout == Layout(2, 2, 1, Placement::loop));
  CHECK(read("0F0,3F0,1F1\n1F0,2F0\n").layout == Layout(2, 2, 2, Placement::vee));
  CHECK_THROWS_AS(read("0F0\n2F0\n"), InputError);
  CHECK_THAT(input_error_of([] { (void)read_compute_csv("0F0,1BW0\n1F0,0BW0\n", "x", {}, CsvDialect::legacy); }),
             Contains("1BW0"));
}

TEST_CASE("a file must fit the layout that is asked for", "[schedule]") {
  const std::string text = write_compute_csv(one_f_one_b(Layout(2, 1, 2)));
  CHECK_NOTHROW(read_compute_csv(text, "x", Layout(2, 1, 2, Placement::vee)));
  CHECK_NOTHROW(read_compute_csv(text, "x", Layout(2, 2, 4)));  // incomplete is for the check to say
  CHECK_THAT(csv_refusal(text, Layout(3, 1, 2)), Contains("2 rows, but P=3"));
  CHECK_THAT(csv_refusal(text, Layout(2, 1, 1)), Contains("row 1 (rank 0), column 2: 0F1: there is no microbatch 1"));
  const std::string looped = write_compute_csv(interleaved(Layout(2, 2, 2), 2));
  CHECK_THAT(csv_refusal(looped, Layout(2, 1, 2)), Contains("there is no chunk 2"));
  CHECK_THAT(csv_refusal(looped, Layout(2, 2, 2, Placement::vee)), Contains("placement vee runs chunk 2 on rank 1"));
}

TEST_CASE("a huge file is refused or read without growing", "[schedule]") {
  CHECK_THAT(csv_refusal(std::string(std::size_t{16} << 20, ',')), Contains("no computation at all"));
  CHECK_THAT(csv_refusal(std::string(std::size_t{1} << 20, '\n')), Contains("more than 4096 rows"));
  CHECK_THAT(csv_refusal(std::string(std::size_t{1} << 20, '7')), Contains("is above 65535"));
  CHECK_THAT(csv_refusal(std::string((std::size_t{256} << 20) + 1, ',')), Contains("too large"));
}

TEST_CASE("a damaged file is refused or read as it stands but never breaks the reader", "[schedule]") {
  std::mt19937 random(11);
  const std::string whole = write_compute_csv(interleaved(Layout(3, 2, 3), 3));
  const std::string alphabet = "0123456789FBIW,;()\"\r\n _XOVERLAP\xd9";
  int read = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string text = damaged(whole, alphabet, i % 2 != 0, random);
    try {
      const Schedule schedule = read_compute_csv(text, "x");
      REQUIRE(read_compute_csv(write_compute_csv(schedule), "x", schedule.layout).ranks == schedule.ranks);
      (void)check_schedule(schedule);
      ++read;
    } catch (const InputError&) {
    }
  }
  CHECK(read > 0);
}

}  // namespace
}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "plumb/schedule/check.hpp"
#include "plumb/schedule/comms_csv.hpp"
#include "plumb/schedule/compute_csv.hpp"
#include "support.hpp"

namespace plumb {
namespace {

using Catch::Matchers::Contains;
using test::damaged;
using test::input_error_of;

std::string comms_refusal(std::string_view text, CsvDialect dialect = CsvDialect::current) {
  const std::string error = input_error_of([&] { (void)read_comms_csv(text, "plan.csv", std::nullopt, dialect); });
  CHECK_THAT(error, Catch::Matchers::StartsWith("plan.csv: "));
  return error;
}

// P=2 V=1 M=1, each receive directly before its consumer.
const std::string smallest = "0F0,0SEND_F0,0RECV_B0,0B0\r\n1RECV_F0,1F0,1B0,1SEND_B0\r\n";

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a schedule with communication is read item by item", "[schedule]") {
  const CommsSchedule schedule = read_comms_csv(smallest, "x");
  CHECK(schedule.layout == Layout(2, 1, 1));
  CHECK_FALSE(schedule.forward_only);
  REQUIRE(schedule.ranks.size() == 2);
  const std::vector<CommsItem> expected = {
      CommAction{CommOp::receive_forward, ChunkId(1), Microbatch(0)},
      Action{{Op::forward, ChunkId(1), Microbatch(0)}, {}},
      Action{{Op::backward, ChunkId(1), Microbatch(0)}, {}},
      CommAction{CommOp::send_backward, ChunkId(1), Microbatch(0)},
  };
  CHECK(schedule.ranks[1] == expected);
  CHECK(computations_of(schedule).ranks == read_compute_csv("0F0,0B0\n1F0,1B0\n", "x").ranks);
}

TEST_CASE("every token of both kinds is written as it is read", "[schedule]") {
  for (const char* token :
       {"0F0", "12B3", "2I3", "2W3", "(0F7;7B3)OVERLAP_F_B", "(0F7;7I3)OVERLAP_F_B", "0SEND_F1", "1RECV_F1", "2SEND_B0",
        "1RECV_B0", "3UNSHARD", "3RESHARD", "3REDUCE_GRAD", "65535RECV_B1048575"}) {
    CHECK(to_string(parse_comms_item(token)) == token);
  }
}

TEST_CASE("torch's own lowered schedules are read and written back byte for byte", "[schedule]") {
  int files = 0;
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PLUMB_SCHEDULE_TEST_DATA "/torch_comms")) {
    const std::string name = entry.path().filename().string();
    INFO(name);
    const std::string text = file_text(entry.path());
    CHECK(spells_communication(text));
    const CommsSchedule schedule = read_comms_csv(text, name);
    CHECK(write_comms_csv(schedule) == text);
    CHECK(check_schedule(computations_of(schedule)).ok());
    std::string compute = name;
    compute.replace(compute.find("_comms"), 6, "_compute");
    const std::filesystem::path compute_path = entry.path().parent_path().parent_path() / "torch" / compute;
    ++files;
    if (!std::filesystem::exists(compute_path)) continue;
    const std::string compute_text = file_text(compute_path);
    CHECK_FALSE(spells_communication(compute_text));
    CHECK(computations_of(schedule).ranks == read_compute_csv(compute_text, compute).ranks);
    ++compared;
  }
  CHECK(files == 45);
  CHECK(compared > 30);
}

TEST_CASE("blanks and quotes and either line end are read in schedules with communication", "[schedule]") {
  const CommsSchedule expected = read_comms_csv(smallest, "x");
  for (const char* text : {
           "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
           "0F0,0SEND_F0,0RECV_B0,0B0\r\n1RECV_F0,1F0,1B0,1SEND_B0",
           " 0F0 ,\t0SEND_F0,\"0RECV_B0 \",0B0\n\"1RECV_F0\",1F0,1B0,1SEND_B0\n",
       }) {
    CHECK(read_comms_csv(text, "x").ranks == expected.ranks);
  }
  CHECK(write_comms_csv(expected) == smallest);
}

TEST_CASE("an empty cell among communication is refused but an empty row is an idle rank", "[schedule]") {
  CHECK_THAT(comms_refusal("0F0,0SEND_F0,0RECV_B0,0B0,\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
             Contains("row 1 (rank 0), column 5: an empty cell"));
  CHECK_THAT(comms_refusal("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0,"),
             Contains("row 2 (rank 1), column 5: an empty cell"));
  CHECK_THAT(comms_refusal("0F0,,0SEND_F0,0RECV_B0,0B0\n"), Contains("row 1 (rank 0), column 2: an empty cell"));
  CHECK_THAT(comms_refusal(",\n"), Contains("row 1 (rank 0), column 1: an empty cell"));
  for (const char* empty : {"\"\"\r\n", "\r\n", " \n"}) {
    const std::string text = std::string("0F0,0SEND_F0\n") + empty + "2RECV_F0,2F0\n3F0\n";
    const CommsSchedule schedule = read_comms_csv(text, "x", Layout(4, 1, 1));
    CHECK(schedule.ranks[1].empty());
    CHECK(write_comms_csv(schedule) == "0F0,0SEND_F0\r\n\"\"\r\n2RECV_F0,2F0\r\n3F0\r\n");
  }
}

TEST_CASE("a cell that torch's reader would guess at is refused with row and column and token", "[schedule]") {
  for (const char* trap : {"0F0junk",
                           "2BW0",
                           "0WAIT_SEND_F0",
                           "0WAIT_SEND_B0",
                           "0F0;1F0",
                           "1I2.5",
                           "0F 0",
                           "00F07",
                           "00SEND_F0",
                           "0SEND_F00",
                           "0F\xd9\xa3",
                           "\xd9\xa0"
                           "F0",
                           "0SEND_F\xd9\xa3",
                           "()OVERLAP_F_B",
                           "-1OVERLAP_F_B",
                           "F0",
                           "SEND_F0",
                           "-1SEND_F0",
                           "-1F0",
                           "0f0",
                           "0send_f0",
                           "0SEND",
                           "0SEND0",
                           "0SEND_F",
                           "0SEND_F0junk",
                           "0SEND_F 0",
                           "0UNSHARD0",
                           "0UNSHARD ED",
                           "0REDUCE_GRADS",
                           "None",
                           "0F",
                           "(0F7;7B3) OVERLAP_F_B",
                           "(0F7; 7B3)OVERLAP_F_B",
                           "(0SEND_F0;2RECV_F0)BATCH_P2P",
                           "(0SEND_F0;0B0)OVERLAP_F_B",
                           "65536SEND_F0",
                           "\"0F0",
                           "'0F0'"}) {
    CAPTURE(trap);
    const std::string error = comms_refusal(std::string("0F0,0B0\r\n1F0,1RECV_F0,") + trap + ",1B0\r\n");
    CHECK_THAT(error, Contains("row 2 (rank 1), column 3: "));
  }
  CHECK_THAT(comms_refusal("0F0,0SEND_F0junk\n"),
             Contains("\"0SEND_F0junk\"") && Contains("stands after the microbatch"));
  CHECK_THAT(comms_refusal("0UNSHARD7\n"), Contains("nothing may stand after UNSHARD"));
  CHECK_THAT(comms_refusal("0SEND7\n"), Contains("needs its direction"));
  CHECK_THAT(comms_refusal("0WAIT_SEND_F0\n"), Contains("WAIT_SEND_F is no action of the format"));
}

TEST_CASE("a file that is no plain CSV is refused as a schedule with communication", "[schedule]") {
  CHECK_THAT(comms_refusal(""), Contains("empty"));
  CHECK_THAT(comms_refusal("\n"), Contains("no computation at all"));
  CHECK_THAT(comms_refusal("0UNSHARD,0RESHARD\n"), Contains("no computation at all"));
  CHECK_THAT(comms_refusal("\xef\xbb\xbf" + smallest), Contains("byte order mark"));
  CHECK_THAT(comms_refusal(std::string("0F0\0,0B0\n", 9)), Contains("\\x00"));
  CHECK_THAT(comms_refusal("0F0,0B0\r1F0,1B0\r"), Contains("row 1 (rank 0), column 2") && Contains("carriage return"));
  CHECK_THAT(comms_refusal("\x7f"
                           "ELF\x02\x01\x01"),
             Contains("row 1 (rank 0), column 1") && Contains("\\x7f"));
  CHECK_THAT(comms_refusal(std::string(std::size_t{100} << 20, ',')),
             Contains("row 1 (rank 0), column 1: an empty cell"));
  CHECK_THAT(comms_refusal(std::string((std::size_t{256} << 20) + 1, ',')), Contains("too large"));
  CHECK_THAT(comms_refusal(std::string(std::size_t{1} << 20, '\n')), Contains("more than 4096 rows"));
}

TEST_CASE("communication beyond the layout of the computations is refused", "[schedule]") {
  CHECK_THAT(comms_refusal("0F0,9SEND_F0\n1F0\n"),
             Contains("row 1 (rank 0), column 2: 9SEND_F0: there is no chunk 9, P=2 V=1 has 0..1"));
  CHECK_THAT(comms_refusal("0F0,0SEND_F1\n1F0\n"),
             Contains("row 1 (rank 0), column 2: 0SEND_F1: there is no microbatch 1, only 0..0"));
  CHECK_THAT(comms_refusal("0F0,5UNSHARD\n1F0\n"), Contains("there is no chunk 5"));
  CHECK_THAT(input_error_of([] { (void)read_comms_csv(smallest, "x", Layout(3, 1, 1)); }), Contains("needs one row"));
  CHECK_NOTHROW(read_comms_csv(smallest, "x", Layout(2, 1, 1)));
}

TEST_CASE("the legacy switch reads B as input gradient and BW as full backward in both dialects", "[schedule]") {
  const std::string text = "0F0,0F1,0B0,0W0,0BW1\n1F0,1B0,1W0,1F1,1BW1\n";
  const Schedule schedule = read_compute_csv(text, "x", std::nullopt, CsvDialect::legacy);
  CHECK(write_compute_csv(schedule) == "0F0,0F1,0I0,0W0,0B1\r\n1F0,1I0,1W0,1F1,1B1\r\n");
  CHECK(check_schedule(schedule).ok());
  CHECK_THAT(input_error_of([&] { (void)read_compute_csv(text, "x"); }),
             Contains("column 5") && Contains("read the file as legacy"));

  const std::string comms = "0F0,0SEND_F0,0RECV_B0,0BW0\n1RECV_F0,1F0,1B0,1SEND_B0,1W0\n";
  CHECK(write_comms_csv(read_comms_csv(comms, "x", std::nullopt, CsvDialect::legacy)) ==
        "0F0,0SEND_F0,0RECV_B0,0B0\r\n1RECV_F0,1F0,1I0,1SEND_B0,1W0\r\n");
  CHECK_THAT(comms_refusal("0F0,0I0,0W0\n", CsvDialect::legacy), Contains("I does not exist in the old dialect"));
  CHECK_THAT(comms_refusal("(0F0;1B0)OVERLAP_F_B\n", CsvDialect::legacy),
             Contains("pairs do not exist in the old dialect"));
  CHECK_THAT(comms_refusal("0F0,0X0\n", CsvDialect::legacy), Contains("F, B, W, BW"));
}

TEST_CASE("the columns of a compute schedule count its bubbles", "[schedule]") {
  CsvColumns columns;
  (void)read_compute_csv("0F0,,,0B0\n,1F0,1B0\n", "x", std::nullopt, CsvDialect::current, &columns);
  CHECK(columns == CsvColumns{{0, 3}, {1, 2}});
}

TEST_CASE("a damaged schedule with communication is refused or read as it stands", "[schedule]") {
  std::mt19937 random(12);
  const std::string whole = file_text(PLUMB_SCHEDULE_TEST_DATA "/torch_comms/DualPipeV_P2_V2_M4_comms.csv");
  const std::string alphabet = "0123456789FBIWSENDRCV,;()\"\r\n _XOVERLAP\xd9";
  int read = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string text = damaged(whole, alphabet, i % 2 != 0, random);
    try {
      const CommsSchedule schedule = read_comms_csv(text, "x");
      REQUIRE(read_comms_csv(write_comms_csv(schedule), "x", schedule.layout).ranks == schedule.ranks);
      ++read;
    } catch (const InputError&) {
    }
  }
  CHECK(read > 0);
}

}  // namespace plumb

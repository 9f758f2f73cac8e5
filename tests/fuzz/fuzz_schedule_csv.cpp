// SPDX-License-Identifier: Apache-2.0
// Both dialects of the schedule CSV, current and legacy. The first byte of the input chooses the dialect.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "expect.hpp"
#include "plumb/cache/comms_check.hpp"
#include "plumb/cache/comms_program.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/check.hpp"
#include "plumb/schedule/comms_csv.hpp"
#include "plumb/schedule/compute_csv.hpp"
#include "plumb/schedule/error.hpp"

namespace {

using namespace plumb;

using fuzz::expect;
using fuzz::try_to;

// Whatever the rows' placement and numbers, they are named, not followed.
void judge_misplaced(std::string_view text, CsvDialect dialect) {
  (void)check_schedule(read_compute_csv(text, "fuzz", std::nullopt, dialect, nullptr, CsvFit::nearest));
}

void judge_misplaced_comms(std::string_view text, CsvDialect dialect) {
  const CommsSchedule schedule = read_comms_csv(text, "fuzz", std::nullopt, dialect, CsvFit::nearest);
  (void)check_comms(schedule, all_channel_models());
}

void read_compute(std::string_view text, CsvDialect dialect) {
  CsvColumns columns;
  const Schedule schedule = read_compute_csv(text, "fuzz", std::nullopt, dialect, &columns);
  expect(columns.size() == schedule.ranks.size());
  const Schedule back = read_compute_csv(write_compute_csv(schedule), "fuzz", schedule.layout);
  expect(back.ranks == schedule.ranks && back.forward_only == schedule.forward_only);
  const Layout& layout = schedule.layout;
  if (!check_schedule(schedule).ok() || layout.num_chunks() > 64) return;
  // Whatever is legal can be lowered, written with its communication, and is then safe on every channel.
  const int chunks = layout.num_chunks();
  const DepthMap depth(chunks, chunks, DepthMap::even_cuts(chunks, chunks, chunks), Residual::standard);
  expect(check_comms(comms_schedule(lower(schedule, depth, Policy::standard)), all_channel_models()).ok());
}

void read_comms(std::string_view text, CsvDialect dialect) {
  const CommsSchedule schedule = read_comms_csv(text, "fuzz", std::nullopt, dialect);
  const std::string written = write_comms_csv(schedule);
  const CommsSchedule back = read_comms_csv(written, "fuzz", schedule.layout);
  expect(back.ranks == schedule.ranks && write_comms_csv(back) == written);
  const CommsCheck check = check_comms(schedule, all_channel_models());
  // Free of faults means that it runs through where sends are buffered.
  if (check.faults.empty() && check.cycle.empty()) expect(!check.channels.front().deadlock.deadlock);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const CsvDialect dialect = data[0] == 'L' ? CsvDialect::legacy : CsvDialect::current;
  const std::string text(data + 1, data + size);
  try_to([&] { read_compute(text, dialect); });
  try_to([&] { read_comms(text, dialect); });
  try_to([&] { judge_misplaced(text, dialect); });
  try_to([&] { judge_misplaced_comms(text, dialect); });
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/against.hpp"

#include <algorithm>

#include "names.hpp"

namespace plumb {
namespace {

// How much later than predicted the last of these inputs was there.
SimTime lag_of_inputs(const RankProgram& steps, Range waits, RankId rank, const Timeline& predicted,
                      const Timeline& measured) {
  SimTime expected{0};
  SimTime was{0};
  for (const Wait& wait : steps.waits_of(waits)) {
    expected = std::max(expected, predicted.finished(rank, wait));
    was = std::max(was, measured.finished(rank, wait));
  }
  return was - expected;
}

SimTime queue_of(const MessageTimes& times) { return times.start - std::max(times.send_ready, times.posted); }

}  // namespace

double Against::difference() const {
  return predicted_step > SimTime(0)
             ? static_cast<double>(measured_step.count()) / static_cast<double>(predicted_step.count()) - 1
             : 0;
}

Against compare_against(const Program& program, const Timeline& predicted, const Timeline& measured) {
  Against all;
  all.predicted_step = predicted.step;
  all.measured_step = measured.step;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const RankId rank(r);
    const RankProgram& steps = program.ranks[r];
    SimTime lag_before{0};
    for (std::size_t i = 0; i < steps.compute.size(); ++i) {
      const ComputeTimes& expected = predicted.ranks[r].compute[i];
      const ComputeTimes& was = measured.ranks[r].compute[i];
      const SimTime inherited =
          std::max(lag_before, lag_of_inputs(steps, steps.compute[i].waits, rank, predicted, measured));
      const SimTime lag_after = was.end - expected.end;
      all.actions.push_back({rank, steps.compute[i].compute, expected.start, was.start, expected.end - expected.start,
                             was.end - was.start, lag_after - inherited});
      lag_before = lag_after;
    }
  }
  for (std::size_t m = 0; m < program.messages.size(); ++m) {
    const MessageId message(m);
    const MessageTimes& expected = predicted.messages[m];
    const MessageTimes& was = measured.messages[m];
    TransferAgainst transfer{message, program.sender(message), program.receiver(message),
                             message_name(program, message, true)};
    transfer.predicted_arrival = expected.arrived;
    transfer.measured_arrival = was.arrived;
    transfer.predicted_queue = queue_of(expected);
    transfer.measured_queue = queue_of(was);
    transfer.predicted_wire = expected.arrived - expected.start;
    transfer.measured_wire = was.arrived - was.start;
    transfer.added =
        transfer.measured_queue + transfer.measured_wire - transfer.predicted_queue - transfer.predicted_wire;
    all.transfers.push_back(std::move(transfer));
  }
  return all;
}

}  // namespace plumb

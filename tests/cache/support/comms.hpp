// SPDX-License-Identifier: Apache-2.0
//
// comms.hpp (tests): schedules with communication to check and to break.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plumb/cache/comms_check.hpp"
#include "plumb/schedule/comms_csv.hpp"

namespace plumb::test {

// The rows as a file, LF between them.
CommsSchedule comms(std::string_view text);

// All of torch's own lowered schedules.
std::vector<CommsSchedule> torch_schedules();

// What torch's deferred lowering makes: every receive moves down to directly before the item that needs it.
CommsSchedule with_deferred_receives(const CommsSchedule& schedule);

// "row 0 column 3 0F1: its input ..." of each fault, one per line.
std::string faults_of(const CommsCheck& check);

// "0:0SEND_F1 1:1SEND_B0 "
std::string cycle_of(const DeadlockReport& report);

CommsCheck check_all(const CommsSchedule& schedule);

const ChannelVerdict& verdict(const CommsCheck& check, ChannelModel model);

}  // namespace plumb::test

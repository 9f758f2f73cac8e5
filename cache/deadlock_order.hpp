// SPDX-License-Identifier: Apache-2.0
//
// deadlock_order.hpp (private): the short proof that a program cannot deadlock.
#pragma once

#include "plumb/cache/program.hpp"

namespace plumb {

// True if the messages' numbers are one order that everything follows: on every rank its sends and receives stand in
// ascending order of their messages, each message has one send on its sender and one receive on its receiver, on the
// transfer's lane, and every step waits only for steps that stand before it.
//
// Then the program finishes under every channel model. In all of them a step is held back only by its waits, by steps
// that stand before it on its rank (its queue, its group, its rank's blocking posts) and by its partner, and the n-th
// entries of the two ends of a queue are the two ends of one message, since both ends list the same messages in
// ascending order. Take the smallest message with an end that never finishes: what stands before either end are smaller
// messages, which finish, and local steps, which finish one after the other. So both ends are reached, and finish.
//
// False proves nothing. REQUIRES a sound structure (verify_structure). Linear, one pass.
bool follows_one_order(const Program& program);

}  // namespace plumb

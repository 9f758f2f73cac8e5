// SPDX-License-Identifier: Apache-2.0
// A user of `sizing`: the parameters of a published model.
#include <plumb/sizing/weights.hpp>

int main() { return plumb::parameters(plumb::load_shape("kimi-linear-48b")).all == 49'122'681'728 ? 0 : 1; }

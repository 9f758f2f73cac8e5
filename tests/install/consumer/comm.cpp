// SPDX-License-Identifier: Apache-2.0
// A user of `comm` alone: two ranks in one process.
#include <plumb/comm/inproc.hpp>

int main() {
  plumb::InprocHub hub(2);
  const auto transport = hub.make_transport(plumb::PeerId{1});
  return transport->rank().value == 1 && transport->size() == 2 ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/policy.hpp"

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb {

std::string_view to_string(Policy policy) {
  switch (policy) {
    case Policy::standard:
      return "standard";
    case Policy::naive:
      return "naive";
    case Policy::relay:
      return "relay";
    case Policy::cached:
      return "cached";
    case Policy::direct:
      return "direct";
  }
  return "?";
}

Policy parse_policy(std::string_view text) {
  for (const Policy policy : {Policy::naive, Policy::relay, Policy::cached, Policy::direct}) {
    if (text == to_string(policy)) {
      return policy;
    }
  }
  throw InputError(fmt::format("unknown cache policy '{}': legal are naive, relay, cached, direct", text));
}

}  // namespace plumb

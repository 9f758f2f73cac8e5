// SPDX-License-Identifier: Apache-2.0
// Profiles of measured times. What is read comes back the same from what is written of it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "expect.hpp"
#include "plumb/sizing/profile.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plumb;
  fuzz::try_to([text = std::string(data, data + size)] {
    const Profile profile = parse_profile(text, "fuzz");
    fuzz::expect(!profile.times.empty() && profile.times.size() == profile.cuts.size());
    const Profile back = parse_profile(to_json(profile), "written");
    fuzz::expect(back.cuts == profile.cuts && back.steps == profile.steps && to_json(back) == to_json(profile));
  });
  return 0;
}

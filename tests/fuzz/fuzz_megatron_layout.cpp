// SPDX-License-Identifier: Apache-2.0
// Megatron's layout string.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "expect.hpp"
#include "plumb/schedule/megatron_layout.hpp"

namespace {

using plumb::fuzz::expect;

void check(std::string_view text) {
  using namespace plumb;
  const MegatronLayout layout = parse_megatron_layout(text);
  expect(!layout.stages.empty() && layout.stages.size() <= 65536);
  expect(layout.stages.front().embedding && layout.decoder_layers() > 0);
  expect(layout.cuts().size() == layout.stages.size() && layout.cuts().back() == 2 * layout.decoder_layers());
  // Written without its m layers and with the loss in the last stage, the same stages come back.
  expect(parse_megatron_layout(megatron_layout_text(layout.cuts())).cuts() == layout.cuts());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  plumb::fuzz::try_to([&] { check(std::string(data, data + size)); });
  return 0;
}

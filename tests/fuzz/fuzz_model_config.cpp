// SPDX-License-Identifier: Apache-2.0
// config.json of a model, all dialects: whatever widths it has, its parameters and its work can be counted.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "expect.hpp"
#include "plumb/sizing/layer_costs.hpp"
#include "plumb/sizing/left_out.hpp"
#include "plumb/sizing/model_config.hpp"
#include "plumb/sizing/model_shape.hpp"
#include "plumb/sizing/weights.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plumb;
  const std::string text(data, data + size);
  fuzz::try_to([&] {
    const ModelConfig config = parse_model_config(text, "fuzz");
    fuzz::expect(config.decoder_layers > 0 && config.hidden > 0);
  });
  fuzz::try_to([&] {
    const ModelShape shape = parse_shape(text, "fuzz");
    fuzz::expect(shape.hidden > 0 && !shape.layers.empty());
    const Parameters counted = parameters(shape);
    fuzz::expect(counted.used > 0 && counted.used <= counted.all);
    for (const Work& work : sublayer_work(shape, 128))
      fuzz::expect(std::isfinite(work.forward) && work.forward >= 0);
  });
  fuzz::try_to([&] {
    for (const LeftOut& part : parse_left_out(text, "fuzz"))
      fuzz::expect(!to_string(part).empty());
  });
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// left_out.hpp: what a config.json says of its model that takes time or memory and is counted nowhere here.
//
// A model is costed as a stack of decoder layers between an embedding and a head, each token attending to all before
// it. Layers that predict further tokens, encoders of pictures and sound, windows of attention and experts without a
// home in that stack are not: whoever prints times or bytes of such a model says so. Pure but for reading the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plumb {

struct LeftOut {
  std::string field;  // as in the file, with "text_config." before it where it is nested
  std::string value;  // as in the file, short; empty for an object
  std::string what;   // "multi-token prediction"
  friend bool operator==(const LeftOut&, const LeftOut&) = default;
};

// "num_nextn_predict_layers: 1 (multi-token prediction)".
std::string to_string(const LeftOut& part);

// In the order of a list of ours. A preset by name leaves nothing out; else the path of a config.json. Throws
// InputError as load_model() does.
std::vector<LeftOut> left_out_of(std::string_view name_or_path);

// `source` names the text in errors.
std::vector<LeftOut> parse_left_out(std::string_view json_text, std::string_view source);

}  // namespace plumb

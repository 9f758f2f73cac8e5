// SPDX-License-Identifier: Apache-2.0
#include "train_lm/training_state.hpp"

#include <cstddef>

namespace plumb::lm {

std::vector<NamedTensor> state_tensors(const AdamW& optimizer) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const Parameter& parameter = optimizer.parameters()[i];
    tensors.push_back({parameter.name, parameter.value.detach()});
    tensors.push_back({parameter.name + "/first_moment", optimizer.moments()[i].first});
    tensors.push_back({parameter.name + "/second_moment", optimizer.moments()[i].second});
  }
  return tensors;
}

void restore(AdamW& optimizer, const std::string& folder, const CheckpointInfo& info) {
  std::vector<NamedTensor> tensors = state_tensors(optimizer);
  load_tensors(folder, tensors);
  optimizer.resume(info.num_steps);
}

}  // namespace plumb::lm

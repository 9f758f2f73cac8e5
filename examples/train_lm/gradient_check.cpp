// SPDX-License-Identifier: Apache-2.0
#include "train_lm/gradient_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "train_lm/gather.hpp"

namespace plumb::lm {

namespace {

std::vector<double> elements_of(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.detach().to(at::kDouble).contiguous();
  const double* const data = wide.data_ptr<double>();
  return {data, data + wide.numel()};
}

// Name, zero byte, number of elements, elements; one after the other.
std::string encode(const std::vector<Parameter>& parameters) {
  std::string text;
  for (const Parameter& parameter : parameters) {
    const std::vector<double> gradient = elements_of(parameter.value.grad());
    const std::uint64_t count = gradient.size();
    text += parameter.name;
    text += '\0';
    text.append(reinterpret_cast<const char*>(&count), sizeof(count));
    text.append(reinterpret_cast<const char*>(gradient.data()), count * sizeof(double));
  }
  return text;
}

void decode(std::string_view text, std::map<std::string, std::vector<double>>& gradients) {
  while (!text.empty()) {
    const std::string name(text.substr(0, text.find('\0')));
    text.remove_prefix(name.size() + 1);
    std::uint64_t count = 0;
    std::memcpy(&count, text.data(), sizeof(count));
    text.remove_prefix(sizeof(count));
    std::vector<double> gradient(count);
    std::memcpy(gradient.data(), text.data(), count * sizeof(double));
    text.remove_prefix(count * sizeof(double));
    if (!gradients.emplace(name, std::move(gradient)).second) {
      throw std::logic_error(fmt::format("parameter {} is owned twice", name));
    }
  }
}

double difference(std::span<const double> a, std::span<const double> b) {
  double largest = 0;
  double scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    // Not std::max, which would let a NaN pass.
    const double gap = std::abs(a[i] - b[i]);
    largest = gap > largest || std::isnan(gap) ? gap : largest;
    scale = std::max(scale, std::abs(b[i]));
  }
  return scale > 0 ? largest / scale : largest;
}

}  // namespace

double compare_gradients(ControlPlane* control, const std::vector<Parameter>& mine,
                         const std::vector<Parameter>& reference) {
  std::map<std::string, std::vector<double>> gradients;
  for (const std::string& text : gather(control, encode(mine))) {
    decode(text, gradients);
  }
  if (control != nullptr && control->rank() != PeerId{0}) {
    return 0;
  }
  double largest = 0;
  for (const Parameter& parameter : reference) {
    const auto found = gradients.find(parameter.name);
    const std::vector<double> expected = elements_of(parameter.value.grad());
    if (found == gradients.end() || found->second.size() != expected.size()) {
      throw std::logic_error(fmt::format("parameter {} is on no rank, or with another size", parameter.name));
    }
    const double gap = difference(found->second, expected);
    largest = gap > largest || std::isnan(gap) ? gap : largest;
  }
  if (gradients.size() != reference.size()) {
    throw std::logic_error(
        fmt::format("{} parameters on the ranks, {} in the model", gradients.size(), reference.size()));
  }
  return largest;
}

}  // namespace plumb::lm

// SPDX-License-Identifier: Apache-2.0
#include "torch_block.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

namespace plumb::bench {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor tensor_of(const Lines& rows, std::int64_t tokens, std::int64_t width) {
  return at::from_blob(rows.as<float>(), {tokens, width});
}

std::vector<float> copied(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  const float* const first = whole.data_ptr<float>();
  return {first, first + whole.numel()};
}

// A sublayer that answers with given rows and notes the gradient that reaches them.
class Given : public torch::autograd::Function<Given> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& /*differentiable*/,
                            const at::Tensor& output, std::vector<float>* gradient) {
    context->saved_data["gradient"] = reinterpret_cast<std::int64_t>(gradient);
    return output.detach();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    auto* const wanted = reinterpret_cast<std::vector<float>*>(context->saved_data["gradient"].toInt());
    if (wanted != nullptr) *wanted = copied(gradients[0]);
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

struct TorchBlock::State {
  State(const BlockData& data, std::int64_t tokens, TorchForm form_in)
      : form(form_in), eps(data.shape.eps), differentiable(at::ones({1})) {
    const std::int64_t width = data.shape.width;
    const auto all = [&](const std::vector<Lines>& rows) {
      Tensors tensors;
      for (const Lines& each : rows) {
        tensors.push_back(tensor_of(each, tokens, width));
      }
      return tensors;
    };
    sources = all(data.sources);
    outputs = all(data.outputs);
    grad_h = all(data.grad_h);
    grad_closed = tensor_of(data.grad_closed, tokens, width);
    for (std::size_t l = 0; l < outputs.size(); ++l) {
      queries.push_back(at::from_blob(data.queries[l].as<float>(), {width}));
      gains.push_back(at::from_blob(data.gains[l].as<float>(), {width}));
    }
    for (Tensors* leaves : {&sources, &queries, &gains}) {
      for (at::Tensor& each : *leaves) {
        each.set_requires_grad(true);
      }
    }
    differentiable.set_requires_grad(true);
  }

  at::Tensor inverse_rms(const at::Tensor& rows) const { return at::rsqrt(rows.square().mean(-1, true) + eps); }

  // The formula for one sublayer.
  at::Tensor mixture(const Tensors& read, std::size_t l) const {
    const at::Tensor values = at::stack(read);
    const at::Tensor keys = values * inverse_rms(values) * gains[l];
    const at::Tensor weights = at::softmax(at::matmul(keys, queries[l]), 0);
    return at::einsum("nt,ntd->td", {weights, values});
  }

  // Of all sublayers, over the sources alone: mixtures and log sums of exponentials.
  std::pair<Tensors, Tensors> mixtures() const {
    const at::Tensor values = at::stack(sources, 1);  // [tokens, sources, width]
    const at::Tensor folded = at::stack(queries, 1) * at::stack(gains, 1);
    const at::Tensor logits = form == TorchForm::batched ? at::matmul(values * inverse_rms(values), folded)
                                                         : at::matmul(values, folded) * inverse_rms(values);
    const at::Tensor o = at::bmm(at::softmax(logits, 1).transpose(1, 2), values);  // [tokens, sublayers, width]
    return {o.unbind(1), at::logsumexp(logits, 1).unbind(1)};
  }

  at::Tensor merge(const at::Tensor& o, const at::Tensor& lse, const at::Tensor& partial, std::size_t l) const {
    const at::Tensor logit = at::matmul(partial, queries[l] * gains[l]) * inverse_rms(partial).squeeze(-1);
    return at::lerp(o, partial, at::sigmoid(logit - lse).unsqueeze(-1));
  }

  // All h, and the closed block behind them. Without a graph nobody keeps an h.
  Tensors run(Steps& steps, BlockResults* results, bool keep) {
    if (results != nullptr) results->grad_outputs.resize(outputs.size());
    Tensors made;
    Tensors o;
    Tensors lse;
    at::Tensor partial;
    steps.start();
    if (form != TorchForm::per_sublayer) {
      std::tie(o, lse) = mixtures();
      steps.lap();
    }
    for (std::size_t l = 0; l < outputs.size(); ++l) {
      at::Tensor h;
      if (form == TorchForm::per_sublayer) {
        Tensors read = sources;
        if (l > 0) read.push_back(partial);
        h = mixture(read, l);
      } else {
        h = l == 0 ? o[0] : merge(o[l], lse[l], partial, l);
      }
      steps.lap();
      if (results != nullptr) results->h.push_back(copied(h));
      if (keep) made.push_back(h);
      const at::Tensor f =
          Given::apply(differentiable, outputs[l], results == nullptr ? nullptr : &results->grad_outputs[l]);
      steps.skip();
      partial = l == 0 ? f : partial + f;
    }
    steps.lap();
    if (results != nullptr) results->closed.push_back(copied(partial));
    made.push_back(partial);
    return made;
  }

  TorchForm form;
  double eps;
  at::Tensor differentiable;
  Tensors sources;
  Tensors outputs;
  Tensors grad_h;
  at::Tensor grad_closed;
  Tensors queries;
  Tensors gains;
};

TorchBlock::TorchBlock(const BlockData& data, std::int64_t tokens, TorchForm form)
    : state_(std::make_unique<State>(data, tokens, form)) {}
TorchBlock::~TorchBlock() = default;

void TorchBlock::forward(Steps& steps, BlockResults* results) {
  const at::NoGradGuard no_graph;
  state_->run(steps, results, false);
}

void TorchBlock::train(Steps& steps, BlockResults* results) {
  State& s = *state_;
  for (Tensors* leaves : {&s.sources, &s.queries, &s.gains}) {
    for (at::Tensor& each : *leaves) {
      each.mutable_grad() = at::Tensor();
    }
  }
  Tensors made = s.run(steps, results, true);
  Tensors gradients = s.grad_h;
  gradients.push_back(s.grad_closed);
  steps.skip();
  torch::autograd::backward(made, gradients);
  made.clear();
  steps.lap();
  if (results == nullptr) return;
  const auto take = [](const Tensors& leaves, BlockResults::Rows& rows) {
    for (const at::Tensor& each : leaves) {
      rows.push_back(copied(each.grad()));
    }
  };
  take(s.sources, results->grad_sources);
  take(s.queries, results->grad_queries);
  take(s.gains, results->grad_gains);
}

std::string_view to_string(TorchForm form) {
  switch (form) {
    case TorchForm::per_sublayer:
      return "per sublayer";
    case TorchForm::batched:
      return "batched";
    case TorchForm::batched_scaled:
      return "batched, scaled";
  }
  return "?";
}

void use_one_thread() {
  at::set_num_threads(1);
  // OpenBLAS built on plain threads does not listen to torch.
  if (void* const set = dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) {
    reinterpret_cast<void (*)(int)>(set)(1);
  }
}

std::string torch_version() {
  return std::to_string(TORCH_VERSION_MAJOR) + '.' + std::to_string(TORCH_VERSION_MINOR) + '.' +
         std::to_string(TORCH_VERSION_PATCH);
}

}  // namespace plumb::bench

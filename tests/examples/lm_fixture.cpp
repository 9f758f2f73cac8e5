// SPDX-License-Identifier: Apache-2.0
#include "lm_fixture.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>

#include "plumb/cache/lower.hpp"
#include "plumb/runtime/executor.hpp"
#include "plumb/runtime/interpreter.hpp"
#include "plumb/runtime/rank_threads.hpp"
#include "train_lm/adamw.hpp"
#include "train_lm/agreement.hpp"
#include "train_lm/rank_model.hpp"
#include "train_lm/reference.hpp"
#include "train_lm/tape.hpp"

namespace plumb::lm::test {

namespace {

std::vector<double> elements_of(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.detach().to(at::kDouble).contiguous();
  const double* const data = wide.data_ptr<double>();
  return {data, data + wide.numel()};
}

void add_gradients(const std::vector<Parameter>& parameters, Values& values) {
  for (const Parameter& parameter : parameters) {
    if (!values.emplace(parameter.name, elements_of(parameter.value.grad())).second) {
      throw std::logic_error("registered twice: " + parameter.name);
    }
  }
}

void add_values(const std::vector<Parameter>& parameters, Values& values) {
  for (const Parameter& parameter : parameters) {
    values.emplace(parameter.name, elements_of(parameter.value));
  }
}

std::vector<Parameter> trained(const std::vector<Parameter>& parameters, const Training& training) {
  std::vector<Parameter> chosen;
  for (const Parameter& parameter : parameters) {
    if (!training.freeze_depth || !parameter.name.starts_with("depth.")) {
      chosen.push_back(parameter);
    }
  }
  return chosen;
}

std::vector<TokenBatch> batches_of(const LmConfig& config, int microbatches, int step) {
  static const Text text = tiny_text();
  std::vector<TokenBatch> batches;
  for (int m = 0; m < microbatches; ++m) {
    const auto first = static_cast<std::uint64_t>((step * microbatches + m) * config.sequences);
    batches.push_back(text.batch(config.seed, first, config.sequences, config.sequence));
  }
  return batches;
}

SlotShape shape_of(const LmConfig& config) { return {config.tokens(), config.width, config.dtype}; }

void clear(std::vector<Parameter> parameters) {
  for (Parameter& parameter : parameters) {
    parameter.value.mutable_grad().zero_();
  }
}

// A stage that misses one W.
class Forgetful final : public Stage {
 public:
  Forgetful(Stage& inner, Microbatch forgets) : inner_(inner), forgets_(forgets) {}
  void forward(const StageForward& args) override { inner_.forward(args); }
  void backward(const StageBackward& args) override { inner_.backward(args); }
  void backward_input(const StageBackward& args) override { inner_.backward_input(args); }
  void backward_weight(Microbatch microbatch) override {
    if (microbatch != forgets_) {
      inner_.backward_weight(microbatch);
    }
  }

 private:
  Stage& inner_;
  Microbatch forgets_;
};

// Replaces what the named parameters hold.
void set_values(const std::vector<Parameter>& parameters, const Values& values) {
  for (const Parameter& parameter : parameters) {
    const auto found = values.find(parameter.name);
    if (found != values.end()) {
      const at::Tensor target = parameter.value.detach().view(-1);
      for (std::size_t i = 0; i < found->second.size(); ++i) {
        target.select(0, static_cast<std::int64_t>(i)).fill_(found->second[i]);
      }
    }
  }
}

}  // namespace

LmConfig tiny_config(Storage dtype, Residual residual) {
  LmConfig config;
  config.num_sublayers = 6;
  config.width = 16;
  config.heads = 2;
  config.sequence = 8;
  config.sequences = 2;
  config.residual = residual;
  config.block_sublayers = residual == Residual::attnres_full ? 1 : 4;
  config.dtype = dtype;
  config.query_init = QueryInit::normal;
  return config;
}

Text tiny_text() {
  std::string words;
  for (int i = 0; i < 200; ++i) {
    words += "block " + std::to_string(i * i % 97) + " reads its past, ";
  }
  return {"words", words};
}

std::shared_ptr<const Program> make_program(const LmConfig& config, const Case& layout, bool forward_only) {
  ScheduleRequest request;
  request.kind = layout.schedule.value_or(default_schedule(layout.vp));
  request.forward_only = forward_only;
  const Layout ranks(layout.pp, layout.vp, layout.microbatches, layout.placement.value_or(placement_of(request.kind)));
  const auto cuts = layout.cuts.empty()
                        ? DepthMap::even_cuts(config.num_sublayers, config.num_sublayers, ranks.num_chunks())
                        : layout.cuts;
  const DepthMap depth(config.num_sublayers, config.block_sublayers, cuts, config.residual);
  const Policy policy = config.residual == Residual::standard ? Policy::standard : layout.policy;
  return std::make_shared<const Program>(lower(make_schedule(request, ranks), depth, policy));
}

Outcome train_reference(const LmConfig& config, int microbatches, const Training& training) {
  ReferenceModel model(config);
  AdamW optimizer(trained(model.parameters(), training), training.learning_rate);
  Outcome outcome;
  for (int step = 0; step < training.steps; ++step) {
    outcome.losses.push_back(model.accumulate(batches_of(config, microbatches, training.one_batch ? 0 : step)));
    if (step == 0) {
      add_gradients(model.parameters(), outcome.first_gradients);
    }
    optimizer.step();
    clear(model.parameters());
  }
  add_values(model.parameters(), outcome.parameters);
  return outcome;
}

Outcome train_interpreted(const LmConfig& config, const Case& layout, const Training& training) {
  const auto program = make_program(config, layout);
  std::vector<std::unique_ptr<RankModel>> ranks;
  std::vector<AdamW> optimizers;
  StageTable stages(static_cast<std::size_t>(layout.pp * layout.vp), nullptr);
  for (int rank = 0; rank < layout.pp; ++rank) {
    ranks.push_back(std::make_unique<RankModel>(config, program->layout, program->depth, RankId(rank),
                                                RankModelOptions{layout.recompute}));
    optimizers.emplace_back(trained(ranks.back()->parameters(), training), training.learning_rate);
    for (std::size_t chunk = 0; chunk < stages.size(); ++chunk) {
      Stage* const stage = ranks.back()->stages()[chunk];
      stages[chunk] = stage != nullptr ? stage : stages[chunk];
    }
  }
  std::optional<Forgetful> forgetful;
  if (training.without_weight) {
    Stage*& own = stages[training.without_weight->first.index()];
    own = &forgetful.emplace(*own, training.without_weight->second);
  }
  Interpreter interpreter(stages, {Poison::always, nullptr});
  const ProgramHandle handle = interpreter.prepare(program, shape_of(config));
  Outcome outcome;
  for (int step = 0; step < training.steps; ++step) {
    for (const auto& rank : ranks) {
      rank->batches().microbatches = batches_of(config, layout.microbatches, training.one_batch ? 0 : step);
    }
    for (const StepResult& result : interpreter.run(handle)) {
      outcome.peak_deferred_bytes = std::max(outcome.peak_deferred_bytes, result.peak_deferred_bytes);
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i]->head() != nullptr) {
        outcome.losses.push_back(ranks[i]->head()->step_loss());
      }
      if (step == 0) {
        add_gradients(ranks[i]->parameters(), outcome.first_gradients);
      }
      optimizers[i].step();
      clear(ranks[i]->parameters());
    }
  }
  for (const auto& rank : ranks) {
    add_values(rank->parameters(), outcome.parameters);
  }
  return outcome;
}

Outcome train_rank(const LmConfig& config, const Case& layout, const Training& training, const RankLinks& links) {
  const auto program = make_program(config, layout);
  RankModel model(config, program->layout, program->depth, links.rank, {layout.recompute});
  AdamW optimizer(trained(model.parameters(), training), training.learning_rate);
  ExecutorOptions options;
  options.verify_messages = true;
  options.poison = Poison::always;
  Executor executor(links.rank, model.stages(), links.transport, links.control, options);
  const ProgramHandle handle = executor.prepare(program, shape_of(config));
  Outcome outcome;
  for (int step = 0; step < training.steps; ++step) {
    model.batches().microbatches = batches_of(config, layout.microbatches, training.one_batch ? 0 : step);
    executor.run(handle);
    double loss = model.head() != nullptr ? model.head()->step_loss() : 0;
    if (links.control != nullptr) {
      const std::string mine(reinterpret_cast<const char*>(&loss), model.head() != nullptr ? sizeof(loss) : 0);
      for (const std::string& other : links.control->exchange(mine, kControlLimit)) {
        std::memcpy(&loss, other.data(), other.size());
      }
    }
    outcome.losses.push_back(loss);
    if (step == 0) {
      add_gradients(model.parameters(), outcome.first_gradients);
    }
    optimizer.step();
    clear(model.parameters());
  }
  add_values(model.parameters(), outcome.parameters);
  return outcome;
}

Outcome train_threads(const LmConfig& config, const Case& layout, const Training& training) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(layout.pp));
  run_ranks_as_threads(layout.pp, [&](RankId rank, Transport& transport, ControlPlane& control) {
    outcomes[rank.index()] = train_rank(config, layout, training, {rank, &transport, &control});
  });
  Outcome joined = outcomes.front();
  for (Outcome& outcome : outcomes) {
    joined.first_gradients.merge(outcome.first_gradients);
    joined.parameters.merge(outcome.parameters);
  }
  return joined;
}

double reference_loss(const LmConfig& config, int microbatches, const Values& parameters) {
  ReferenceModel model(config);
  set_values(model.parameters(), parameters);
  return model.evaluate(batches_of(config, microbatches, 0));
}

std::vector<double> reference_logits(const LmConfig& config, const std::vector<std::int64_t>& ids) {
  const ReferenceModel model(config);
  return elements_of(model.logits(token_tensor(ids)));
}

std::vector<double> pipeline_logits(const LmConfig& config, const Case& layout, const std::vector<std::int64_t>& ids) {
  Case single = layout;
  single.microbatches = 1;
  const auto program = make_program(config, single, /*forward_only=*/true);
  std::vector<std::unique_ptr<RankModel>> ranks;
  StageTable stages(static_cast<std::size_t>(layout.pp * layout.vp), nullptr);
  for (int rank = 0; rank < layout.pp; ++rank) {
    ranks.push_back(std::make_unique<RankModel>(config, program->layout, program->depth, RankId(rank),
                                                RankModelOptions{layout.recompute}));
    ranks.back()->batches().microbatches = {{ids, ids}};
    for (std::size_t chunk = 0; chunk < stages.size(); ++chunk) {
      Stage* const stage = ranks.back()->stages()[chunk];
      stages[chunk] = stage != nullptr ? stage : stages[chunk];
    }
  }
  interpret_single_thread(program, stages, shape_of(config), {Poison::always, nullptr});
  for (const auto& rank : ranks) {
    if (rank->head() != nullptr) {
      return elements_of(rank->head()->evaluated_logits());
    }
  }
  throw std::logic_error("no rank has the head");
}

double largest_difference(const Values& a, const Values& b) {
  double largest = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (const auto& [name, values] : a) {
    const std::vector<double>& others = b.at(name);
    double gap = values.size() == others.size() ? 0 : std::numeric_limits<double>::infinity();
    double scale = 0;
    for (std::size_t i = 0; i < others.size(); ++i) {
      const double difference = std::abs(values[i] - others[i]);
      gap = difference <= gap ? gap : difference;  // a NaN sticks
      scale = std::max(scale, std::abs(others[i]));
    }
    const double relative = scale > 0 ? gap / scale : gap;
    largest = relative <= largest ? largest : relative;
  }
  return largest;
}

}  // namespace plumb::lm::test

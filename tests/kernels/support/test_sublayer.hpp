// SPDX-License-Identifier: Apache-2.0
// test_sublayer.hpp: a small host layer with an exact handwritten backward, strict about the order of calls.
//
// linear: f = h W. tanh: f = tanh((h / rms(h)) W), scale invariant up to its own eps.
#pragma once

#include <cmath>
#include <map>
#include <stdexcept>
#include <string>

#include "kernels/support/rows.hpp"
#include "plumb/kernels/sublayer.hpp"

namespace plumb::testing {

enum class LayerKind { linear, tanh };

template <class T>
class TestSublayer final : public Sublayer {
 public:
  TestSublayer(std::string name, std::int64_t width, LayerKind kind, double norm_eps)
      : weight(random_rows<T>(name, width * width, 1.0 / std::sqrt(static_cast<double>(width)))),
        gradient(zeros<T>(width * width)),
        width_(width),
        kind_(kind),
        norm_eps_(norm_eps) {}

  void forward(TapeId tape, ConstView h, View f, Keep keep) override {
    ++num_forwards;
    if (h.width != width_ || h.storage != kStorage<T> || f.storage != h.storage || f.tokens != h.tokens) {
      throw std::logic_error("test sublayer: wrong views");
    }
    const T* in = elements<T>(h);
    State state{Rows<T>(in, in + h.num_elements()), {}};
    const Rows<T> out = apply(state.h, h.tokens);
    std::copy(out.begin(), out.end(), elements<T>(f));
    if (keep == Keep::for_backward && !states_.emplace(tape, std::move(state)).second) {
      throw std::logic_error("test sublayer: tape kept twice");
    }
  }

  void backward(TapeId tape, ConstView df, View dh) override {
    backward_input(tape, df, dh);
    backward_weight(tape);
  }

  void backward_input(TapeId tape, ConstView df, View dh) override {
    State& state = states_.at(tape);
    const T* in = elements<T>(df);
    state.df.assign(in, in + df.num_elements());
    const std::int64_t tokens = df.tokens;
    const Rows<T> dz = through_tanh(state, tokens);
    T* out = elements<T>(dh);
    for (std::int64_t t = 0; t < tokens; ++t) {
      Rows<T> dx = zeros<T>(width_);
      for (std::int64_t a = 0; a < width_; ++a) {
        for (std::int64_t b = 0; b < width_; ++b) {
          dx[index(a)] += dz[index(t * width_ + b)] * weight[index(a * width_ + b)];
        }
      }
      const T r = scale(state.h, t);
      T product = 0;
      for (std::int64_t a = 0; a < width_; ++a) {
        product += dx[index(a)] * state.h[index(t * width_ + a)] * r;
      }
      for (std::int64_t a = 0; a < width_; ++a) {
        const T along =
            kind_ == LayerKind::linear ? T(0) : state.h[index(t * width_ + a)] * r * product / static_cast<T>(width_);
        out[t * width_ + a] = r * (dx[index(a)] - along);
      }
    }
  }

  void backward_weight(TapeId tape) override {
    const auto found = states_.find(tape);
    if (found == states_.end() || found->second.df.empty()) {
      throw std::logic_error("test sublayer: weight gradient before the input's");
    }
    const State& state = found->second;
    const std::int64_t tokens = static_cast<std::int64_t>(state.h.size()) / width_;
    const Rows<T> dz = through_tanh(state, tokens);
    for (std::int64_t t = 0; t < tokens && !frozen; ++t) {
      const T r = scale(state.h, t);
      for (std::int64_t a = 0; a < width_; ++a) {
        for (std::int64_t b = 0; b < width_; ++b) {
          gradient[index(a * width_ + b)] += state.h[index(t * width_ + a)] * r * dz[index(t * width_ + b)];
        }
      }
    }
    states_.erase(found);
  }

  void drop(TapeId tape) override { states_.erase(tape); }

  /// h and df, and nothing else, from backward_input on.
  std::size_t deferred_bytes() const override {
    std::size_t sum = 0;
    for (const auto& [tape, state] : states_) {
      sum += state.df.empty() ? 0 : (state.h.size() + state.df.size()) * sizeof(T);
    }
    return sum;
  }

  std::size_t num_kept() const { return states_.size(); }

  /// f for a whole [tokens, width] input.
  Rows<T> apply(const Rows<T>& h, std::int64_t tokens) const {
    Rows<T> f = product(h, tokens);
    if (kind_ == LayerKind::tanh) {
      for (T& value : f) {
        value = std::tanh(value);
      }
    }
    return f;
  }

  Rows<T> weight;
  Rows<T> gradient;
  bool frozen = false;
  int num_forwards = 0;

 private:
  struct State {
    Rows<T> h;
    Rows<T> df;
  };

  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  T scale(const Rows<T>& h, std::int64_t t) const {
    if (kind_ == LayerKind::linear) {
      return T(1);
    }
    double squares = 0;
    for (std::int64_t a = 0; a < width_; ++a) {
      squares += static_cast<double>(h[index(t * width_ + a)]) * static_cast<double>(h[index(t * width_ + a)]);
    }
    return static_cast<T>(1.0 / std::sqrt(squares / static_cast<double>(width_) + norm_eps_));
  }

  Rows<T> product(const Rows<T>& h, std::int64_t tokens) const {
    Rows<T> z = zeros<T>(tokens * width_);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const T r = scale(h, t);
      for (std::int64_t a = 0; a < width_; ++a) {
        for (std::int64_t b = 0; b < width_; ++b) {
          z[index(t * width_ + b)] += h[index(t * width_ + a)] * r * weight[index(a * width_ + b)];
        }
      }
    }
    return z;
  }

  Rows<T> through_tanh(const State& state, std::int64_t tokens) const {
    Rows<T> dz = state.df;
    if (kind_ == LayerKind::tanh) {
      const Rows<T> f = apply(state.h, tokens);
      for (std::size_t i = 0; i < dz.size(); ++i) {
        dz[i] *= T(1) - f[i] * f[i];
      }
    }
    return dz;
  }

  std::int64_t width_;
  LayerKind kind_;
  double norm_eps_;
  std::map<TapeId, State> states_;
};

}  // namespace plumb::testing

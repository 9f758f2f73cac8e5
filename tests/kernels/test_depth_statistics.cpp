// SPDX-License-Identifier: Apache-2.0
// Statistics of depth attention against their definition in float64 on the stored operands.
#include <cmath>
#include <map>
#include <memory>

#include "kernels/support/cpu_case.hpp"
#include "plumb/kernels/block_machine.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr std::int64_t tokens = 21;
constexpr std::int64_t width = 24;
constexpr std::int64_t size = tokens * width;

template <class V>
double wide(V value) {
  if constexpr (sizeof(V) == 8) {
    return value;
  } else {
    return static_cast<double>(widened(value));
  }
}

template <class V>
Rows<V> stored_rows(const std::string& name) {
  Rows<V> out;
  for (const float each : random_rows<float>(name, size)) {
    out.push_back(stored<V>(static_cast<double>(each)));
  }
  return out;
}

template <class V>
Rows<double> widened_rows(const Rows<V>& rows) {
  Rows<double> out;
  for (const V each : rows) {
    out.push_back(wide(each));
  }
  return out;
}

template <class Row>
double squares(const Row& row) {
  double sum = 0;
  for (const auto each : row) {
    sum += static_cast<double>(each) * static_cast<double>(each);
  }
  return sum;
}

// Writes rows of its own whatever it reads, so that blocks and partials are known.
template <class V>
class Fixed final : public Sublayer {
 public:
  using Gradient = std::conditional_t<sizeof(V) == 8, double, float>;

  explicit Fixed(int number) : rows(stored_rows<V>("output " + std::to_string(number))) {}
  void forward(TapeId, ConstView, View f, Keep) override { std::copy(rows.begin(), rows.end(), elements<V>(f)); }
  void backward(TapeId, ConstView df, View dh) override {
    gradient.assign(elements<Gradient>(df), elements<Gradient>(df) + size);
    std::copy(gradient.begin(), gradient.end(), elements<Gradient>(dh));
  }
  void drop(TapeId) override {}

  Rows<V> rows;
  Rows<Gradient> gradient;
};

struct ExpectedStatistics {
  double entropy = 0;
  std::vector<double> weights;
};

// The definition: softmax over sources of q . v / rms(v).
ExpectedStatistics by_definition(const std::vector<Rows<double>>& sources, const Rows<double>& query, double eps) {
  ExpectedStatistics out;
  out.weights.resize(sources.size());
  for (std::size_t t = 0; t < tokens; ++t) {
    std::vector<double> p;
    double sum = 0;
    for (const Rows<double>& source : sources) {
      double dot = 0;
      double mean = 0;
      for (std::size_t k = 0; k < width; ++k) {
        dot += query[k] * source[t * width + k];
        mean += source[t * width + k] * source[t * width + k] / width;
      }
      p.push_back(std::exp(dot / std::sqrt(mean + eps)));
      sum += p.back();
    }
    for (std::size_t i = 0; i < p.size(); ++i) {
      out.weights[i] += p[i] / sum;
      out.entropy -= p[i] / sum * std::log(p[i] / sum);
    }
  }
  return out;
}

// Sublayers 2..6 of 7 in blocks of three, with the head: begins inside block 1, ends with a short block.
template <class V>
void check_against_definition(double bound, bool recompute) {
  using Gradient = typename Fixed<V>::Gradient;
  DepthConfig config;
  config.num_sublayers = 7;
  config.block_length = 3;
  config.width = width;
  config.storage = sizeof(V) == 8 ? Storage::fp64 : sizeof(V) == 4 ? Storage::fp32 : Storage::bf16;
  config.query_init = QueryInit::normal;
  config.query_stddev = 0.4;
  const ChunkRange range{2, 5, true};
  DepthParameters parameters(config, range);
  std::vector<std::unique_ptr<Fixed<V>>> layers;
  std::vector<Sublayer*> list;
  for (int i = 0; i < range.count; ++i) {
    list.push_back(layers.emplace_back(std::make_unique<Fixed<V>>(i)).get());
  }
  DepthStatistics statistics(config, range);
  MachineOptions options;
  options.recompute = recompute;
  options.statistics = &statistics;
  BlockMachine machine(config, range, list, parameters, options);

  const Rows<V> b0 = stored_rows<V>("b_0");
  const Rows<V> partial_in = stored_rows<V>("partial");
  std::vector<Rows<V>> closed(3, Rows<V>(static_cast<std::size_t>(size)));
  Rows<V> head(static_cast<std::size_t>(size));
  const void* const sources[] = {b0.data()};
  void* const outputs[] = {closed[0].data(), closed[1].data(), closed[2].data()};
  MachineForward forward;
  forward.tokens = tokens;
  forward.sources = sources;
  forward.partial_in = partial_in.data();
  forward.closed = outputs;
  forward.head = head.data();
  machine.forward({1}, forward);
  CHECK(statistics.rows().front().num_tokens == 0);  // off at first
  statistics.set_active(true);
  machine.forward({2}, forward);
  std::vector<Rows<Gradient>> sums(4, Rows<Gradient>(static_cast<std::size_t>(size)));
  const BlockGradient grad_sources[] = {{sums[0].data(), true}};
  const BlockGradient grad_closed[] = {{sums[1].data(), true}, {sums[2].data(), true}, {sums[3].data(), true}};
  const void* const values[] = {closed[0].data(), closed[1].data(), closed[2].data()};
  const Rows<Gradient> grad_head = random_rows<Gradient>("grad head", size);
  Rows<Gradient> grad_partial(static_cast<std::size_t>(size));
  MachineBackward backward;
  backward.sources = sources;
  backward.partial_in = partial_in.data();
  backward.closed = values;
  backward.grad_head = grad_head.data();
  backward.grad_sources = grad_sources;
  backward.grad_closed = grad_closed;
  backward.grad_partial_in = grad_partial.data();
  machine.backward({2}, backward);

  std::vector<Rows<double>> blocks = {widened_rows(b0)};
  Rows<V> partial = partial_in;
  REQUIRE(statistics.rows().size() == 6);
  for (int row = 0; row < 6; ++row) {
    CAPTURE(row);
    const AggregateSums& sum = statistics.rows()[static_cast<std::size_t>(row)];
    const bool is_head = row == range.count;
    std::vector<Rows<double>> read = blocks;
    if (!partial.empty()) {
      read.push_back(widened_rows(partial));
    }
    const AggregateParameters own = is_head ? parameters.head() : parameters.sublayer(row);
    Rows<double> query;
    for (std::size_t k = 0; k < width; ++k) {
      query.push_back(static_cast<double>(elements<Gradient>(own.query)[k]) *
                      static_cast<double>(elements<Gradient>(own.gain)[k]));
    }
    const ExpectedStatistics expected = by_definition(read, query, config.eps);
    CHECK(sum.num_tokens == tokens);
    CHECK(std::abs(sum.entropy - expected.entropy) <= bound * tokens);
    CHECK(sum.reads_partial == !partial.empty());
    REQUIRE(sum.block_weights.size() == blocks.size());
    for (std::size_t n = 0; n < read.size(); ++n) {
      const double got = n < blocks.size() ? sum.block_weights[n] : sum.partial_weight;
      CHECK(std::abs(got - expected.weights[n]) <= bound * tokens);
    }
    if (is_head) {
      CHECK(sum.output_squares == Approx(squares(widened_rows(head))).epsilon(1e-12));
      CHECK(sum.output_gradient_squares == 0);
      break;
    }
    const Fixed<V>& layer = *layers[static_cast<std::size_t>(row)];
    CHECK(sum.output_squares == Approx(squares(widened_rows(layer.rows))).epsilon(1e-12));
    CHECK(sum.output_gradient_squares == Approx(squares(layer.gradient)).epsilon(1e-12));
    if (partial.empty()) {
      partial = layer.rows;
    } else {
      for (std::size_t k = 0; k < partial.size(); ++k) {
        partial[k] = stored<V>(wide(partial[k]) + wide(layer.rows[k]));
      }
    }
    const int number = range.first + row;
    if (number % config.block_length == config.block_length - 1 || number + 1 == config.num_sublayers) {
      blocks.push_back(widened_rows(partial));
      partial.clear();
    }
  }
  statistics.clear();
  CHECK(statistics.rows().front().num_tokens == 0);
}

}  // namespace

TEST_CASE("depth statistics are those of the definition in float64", "[kernels]") {
  for (const bool recompute : {false, true}) {
    check_against_definition<double>(1e-13, recompute);
    check_against_definition<float>(2e-6, recompute);
    check_against_definition<Bf16>(2e-6, recompute);
  }
}

TEST_CASE("statistics of another chunk are refused", "[kernels]") {
  DepthConfig config;
  config.num_sublayers = 4;
  config.width = 8;
  DepthParameters parameters(config, {0, 2, false});
  DepthStatistics statistics(config, {0, 3, false});
  Fixed<float> layer(0);
  MachineOptions options;
  options.statistics = &statistics;
  CHECK_THROWS_WITH(BlockMachine(config, {0, 2, false}, {&layer, &layer}, parameters, options),
                    Catch::Matchers::Contains("the depth statistics were made for another chunk"));
}

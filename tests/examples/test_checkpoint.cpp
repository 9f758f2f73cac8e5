// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lm_fixture.hpp"
#include "plumb/schedule/error.hpp"
#include "train_lm/launch.hpp"
#include "train_lm/rank_model.hpp"
#include "train_lm/training_state.hpp"

// Behind torch, which brings a CHECK of its own that ends the program.
#include "support/catch.hpp"
#include "support/refusals.hpp"

using namespace plumb;
using namespace plumb::lm;
using namespace plumb::lm::test;

namespace {

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("plumb-checkpoint-" + std::to_string(::getpid()) + "-" + std::to_string(counter()++))) {}
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  std::filesystem::path file(const std::string& name) const { return path_ / name; }
  std::filesystem::path part() const {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      if (entry.path().extension() == ".part") {
        return entry.path();
      }
    }
    return {};
  }

 private:
  static int& counter() {
    static int count = 0;
    return count;
  }
  std::filesystem::path path_;
};

TrainOptions tiny_options(int pp, int vp, std::int64_t steps) {
  TrainOptions options;
  options.shared.pp = pp;
  options.shared.vp = vp;
  options.shared.microbatches = 4;
  options.shared.layers = 3;
  options.shared.hidden = 16;
  options.heads = 2;
  options.sequence = 8;
  options.tokens = 16;
  options.steps = steps;
  options.text = "given";
  return options;
}

TrainResult run(const TrainOptions& options) {
  return train_inproc(make_train_plan(options, ""), tiny_text(), nullptr);
}

// Every tensor of a model that lies on P ranks, under its name.
std::vector<NamedTensor> tensors_of(const LmConfig& config, int pp, int vp,
                                    std::vector<std::unique_ptr<RankModel>>& models, std::vector<AdamW>& optimizers) {
  const auto program = make_program(config, {.pp = pp, .vp = vp});
  std::vector<NamedTensor> all;
  for (int rank = 0; rank < pp; ++rank) {
    models.push_back(
        std::make_unique<RankModel>(config, program->layout, program->depth, RankId(rank), RankModelOptions{}));
    optimizers.emplace_back(models.back()->parameters(), 1e-3);
    const auto own = state_tensors(optimizers.back());
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::map<std::string, std::string> bytes_of(const std::vector<NamedTensor>& tensors) {
  std::map<std::string, std::string> bytes;
  for (const auto& [name, tensor] : tensors) {
    bytes[name] = std::string(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  }
  return bytes;
}

std::string refusal(const std::string& folder) {
  TrainOptions options = tiny_options(1, 1, 1);
  options.load = folder;
  return plumb::test::refusal_of([&] { run(options); });
}

std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void spill(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace

TEST_CASE("a checkpoint gives every tensor back bit by bit under another layout", "[examples]") {
  const LmConfig config = tiny_config(GENERATE(Storage::fp32, Storage::fp64, Storage::bf16));
  std::vector<std::unique_ptr<RankModel>> models;
  std::vector<AdamW> optimizers;
  const std::vector<NamedTensor> before = tensors_of(config, 2, 2, models, optimizers);
  double value = 0.1;
  for (NamedTensor tensor : before) {
    tensor.tensor.fill_(value /= 1.07);
  }
  const TemporaryFolder folder;
  std::vector<PartFile> parts;
  for (const AdamW& optimizer : optimizers) {
    parts.push_back(write_part(folder.path(), state_tensors(optimizer)));
  }
  commit_checkpoint(folder.path(), {config, 7, 1234, 0.25}, parts);

  const CheckpointInfo info = read_checkpoint(folder.path());
  CHECK(info.num_steps == 7);
  CHECK(info.sequences_drawn == 1234);
  CHECK(info.learning_rate == 0.25);
  CHECK(info.model.block_sublayers == config.block_sublayers);
  for (const auto& [pp, vp] : {std::pair{1, 1}, {3, 1}, {1, 4}, {2, 3}}) {
    std::vector<std::unique_ptr<RankModel>> other_models;
    std::vector<AdamW> other_optimizers;
    const std::vector<NamedTensor> after = tensors_of(config, pp, vp, other_models, other_optimizers);
    CHECK(bytes_of(after) != bytes_of(before));
    for (AdamW& optimizer : other_optimizers) {
      restore(optimizer, folder.path(), info);
      CHECK(optimizer.num_steps() == 7);
    }
    CHECK(bytes_of(after) == bytes_of(before));
  }
}

TEST_CASE("a resumed run continues as if it had never stopped", "[examples]") {
  const TemporaryFolder folder;
  const TrainResult whole = run(tiny_options(2, 2, 6));
  TrainOptions first = tiny_options(2, 2, 3);
  first.save = folder.path();
  const TrainResult begun = run(first);
  TrainOptions second = tiny_options(2, 2, 3);
  second.load = folder.path();
  const TrainResult same = run(second);
  second.shared.pp = 1;
  second.shared.vp = 3;
  const TrainResult other = run(second);
  for (std::size_t step = 0; step < 3; ++step) {
    CHECK(begun.losses[step] == whole.losses[step]);
    // The policies of the first steps come again, so even under the same layout a few additions change their order.
    CHECK(same.losses[step] == Approx(whole.losses[step + 3]).epsilon(1e-6));
    CHECK(other.losses[step] == Approx(whole.losses[step + 3]).epsilon(1e-6));
  }
  // The first loss after loading depends on no gradient: bit by bit.
  CHECK(other.losses[0] == same.losses[0]);
}

TEST_CASE("on one rank a resumed run gives the same bits as an uninterrupted one", "[examples]") {
  const TemporaryFolder folder;
  const std::string dtype = GENERATE("fp32", "bf16");
  TrainOptions whole_options = tiny_options(1, 2, 8);
  whole_options.dtype = dtype;
  const TrainResult whole = run(whole_options);
  TrainOptions first = tiny_options(1, 2, 5);
  first.dtype = dtype;
  first.save = folder.path();
  run(first);
  TrainOptions second = tiny_options(1, 2, 3);
  second.load = folder.path();
  second.save = folder.path();  // replaces what it came from
  const TrainResult rest = run(second);
  CHECK(rest.losses == std::vector<double>(whole.losses.begin() + 5, whole.losses.end()));
  CHECK(read_checkpoint(folder.path()).num_steps == 8);
  CHECK(to_string(read_checkpoint(folder.path()).model.dtype) == dtype);
  // The parts of the first checkpoint are gone.
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator()) == 2);
}

TEST_CASE("a checkpoint without depth fields stays standard", "[examples]") {
  const TemporaryFolder folder;
  TrainOptions options = tiny_options(2, 1, 2);
  options.shared.residual = "standard";
  options.save = folder.path();
  run(options);
  CHECK_FALSE(nlohmann::json::parse(slurp(folder.file("manifest.json"))).contains("depth"));

  TrainOptions again = tiny_options(1, 2, 1);
  again.load = folder.path();
  const TrainPlan plan = make_train_plan(again, "");
  CHECK(plan.model.residual == Residual::standard);
  CHECK(plan.policies.size() == 1);
  CHECK(run(again).losses.size() == 1);
  again.shared.residual = "attnres-block";
  CHECK_THROWS_WITH(make_train_plan(again, ""), Catch::Matchers::Contains("its residual is standard"));
}

TEST_CASE("a damaged, foreign or unfinished checkpoint is refused in one line", "[examples]") {
  const TemporaryFolder folder;
  TrainOptions options = tiny_options(2, 1, 1);
  options.save = folder.path();
  run(options);
  const std::string manifest = slurp(folder.file("manifest.json"));
  const std::filesystem::path part = folder.part();
  const std::string bytes = slurp(part);
  REQUIRE(refusal(folder.path()).empty());

  SECTION("a flipped bit") {
    std::string damaged = bytes;
    damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
    spill(part, damaged);
    CHECK_THAT(refusal(folder.path()), Catch::Matchers::Contains("checksum"));
  }
  SECTION("a truncated part") {
    spill(part, bytes.substr(0, bytes.size() - 1));
    CHECK_THAT(refusal(folder.path()), Catch::Matchers::Contains("bytes instead of"));
  }
  SECTION("a missing part") {
    std::filesystem::remove(part);
    CHECK_THAT(refusal(folder.path()), Catch::Matchers::Contains("missing"));
  }
  SECTION("no manifest") {
    std::filesystem::remove(folder.file("manifest.json"));
    CHECK_THAT(refusal(folder.path()), Catch::Matchers::Contains("not a finished checkpoint"));
  }
  SECTION("a manifest that is not JSON, or of another program") {
    spill(folder.file("manifest.json"), manifest.substr(0, manifest.size() / 2));
    CHECK_THAT(refusal(folder.path()), Catch::Matchers::Contains("damaged, or not a checkpoint"));
    spill(folder.file("manifest.json"), R"({"format": "something else"})");
    CHECK_THAT(refusal(folder.path()), Catch::Matchers::Contains("damaged, or not a checkpoint"));
    spill(folder.file("manifest.json"), "[1, 2]");
    CHECK_THAT(refusal(folder.path()), Catch::Matchers::Contains("damaged, or not a checkpoint"));
  }
  SECTION("a field that is missing or of the wrong type") {
    for (const char* const name : {"sublayers", "hidden", "dtype", "seed"}) {
      auto json = nlohmann::json::parse(manifest);
      json["model"][name] = nlohmann::json::array();
      spill(folder.file("manifest.json"), json.dump());
      CHECK_THAT(refusal(folder.path()), Catch::Matchers::Contains(std::string("model.") + name));
    }
    auto json = nlohmann::json::parse(manifest);
    json["depth"]["mode"] = "sideways";
    spill(folder.file("manifest.json"), json.dump());
    CHECK_THAT(refusal(folder.path()), Catch::Matchers::Contains("sideways"));
  }
  SECTION("a part of another program, listed with its right checksum") {
    const std::string foreign = "just some text";
    spill(part, foreign);
    auto json = nlohmann::json::parse(manifest);
    for (auto& entry : json["parts"]) {
      if (entry["file"] == part.filename().string()) {
        entry["bytes"] = foreign.size();
        entry["checksum"] = [&] {
          char digits[17];
          std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(checksum(foreign)));
          return std::string(digits);
        }();
      }
    }
    spill(folder.file("manifest.json"), json.dump());
    CHECK_THAT(refusal(folder.path()), Catch::Matchers::Contains("not a part of a checkpoint"));
  }
  SECTION("no folder") { CHECK_THAT(refusal(folder.path() + "-else"), Catch::Matchers::Contains("no such folder")); }
}

TEST_CASE("nothing is loaded when one tensor of many does not fit", "[examples]") {
  const TemporaryFolder folder;
  at::Tensor a = at::zeros({4}, at::kFloat);
  at::Tensor b = at::zeros({2, 3}, at::kDouble);
  a.fill_(1);
  b.fill_(2);
  const std::vector<NamedTensor> saved = {{"a", a}, {"b", b}};
  const PartFile part = write_part(folder.path(), saved);
  commit_checkpoint(folder.path(), {tiny_config(), 0, 0, 0}, std::vector{part});

  std::vector<NamedTensor> wrong_shape = {{"a", at::zeros({4}, at::kFloat)}, {"b", at::zeros({3, 2}, at::kDouble)}};
  CHECK_THROWS_AS(load_tensors(folder.path(), wrong_shape), InputError);
  CHECK(wrong_shape[0].tensor.sum().item<double>() == 0);
  std::vector<NamedTensor> wrong_type = {{"a", at::zeros({4}, at::kFloat)}, {"b", at::zeros({2, 3}, at::kFloat)}};
  CHECK_THROWS_AS(load_tensors(folder.path(), wrong_type), InputError);
  CHECK(wrong_type[0].tensor.sum().item<double>() == 0);
  std::vector<NamedTensor> unknown = {{"a", at::zeros({4}, at::kFloat)}, {"c", at::zeros({1}, at::kFloat)}};
  CHECK_THROWS_AS(load_tensors(folder.path(), unknown), InputError);
  CHECK(unknown[0].tensor.sum().item<double>() == 0);
  std::vector<NamedTensor> right = {{"b", at::zeros({2, 3}, at::kDouble)}};
  load_tensors(folder.path(), right);
  CHECK(right[0].tensor.sum().item<double>() == 12);
}

TEST_CASE("a save that fails half-way leaves the old checkpoint in force", "[examples]") {
  const TemporaryFolder folder;
  TrainOptions options = tiny_options(1, 1, 2);
  options.save = folder.path();
  run(options);
  // New parts are written, but the manifest that would name them never comes.
  at::Tensor other = at::zeros({8}, at::kFloat);
  write_part(folder.path(), std::vector<NamedTensor>{{"embedding.weight", other}});
  CHECK(read_checkpoint(folder.path()).num_steps == 2);
  CHECK(refusal(folder.path()).empty());
}

TEST_CASE("a loss that is no number ends the run", "[examples]") {
  const TemporaryFolder folder;
  TrainOptions options = tiny_options(2, 1, 1);
  const LmConfig config = make_train_plan(options, "").model;
  std::vector<std::unique_ptr<RankModel>> models;
  std::vector<AdamW> optimizers;
  tensors_of(config, 1, 1, models, optimizers);
  const std::vector<NamedTensor> state = state_tensors(optimizers.front());
  at::Tensor(state.front().tensor).fill_(std::numeric_limits<double>::quiet_NaN());
  commit_checkpoint(folder.path(), {config, 3, 0, 1e-3}, std::vector{write_part(folder.path(), state)});
  options.load = folder.path();
  CHECK_THROWS_AS(run(options), NumericError);
}

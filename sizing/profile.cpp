// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/profile.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "did_you_mean.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/json_text.hpp"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr std::size_t max_profile_bytes = std::size_t{64} << 20;
constexpr int max_sublayers = 1 << 20;

constexpr std::array<std::string_view, 5> file_keys{"plumb_profile", "made_by", "steps", "cuts", "chunks"};
constexpr std::array<std::string_view, 4> chunk_keys{"forward_s", "backward_s", "backward_input_s",
                                                     "backward_weight_s"};

double in_seconds(SimTime time) { return static_cast<double>(time.count()) * 1e-12; }

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  Profile read(const Json& file) const {
    if (!file.is_object()) refuse("not a profile: no JSON object");
    if (!file.contains("plumb_profile") || file["plumb_profile"] != 1) {
      refuse("not a profile: it has no \"plumb_profile\":1");
    }
    require_known(file, file_keys, "");
    Profile profile;
    const Json& made_by = require(file, "made_by", "");
    if (!made_by.is_string()) refuse("made_by is no text");
    profile.made_by = made_by.get<std::string>();
    profile.steps = whole(require(file, "steps", ""), "steps", 1, 1 << 30);
    const Json& cuts = require(file, "cuts", "");
    const Json& chunks = require(file, "chunks", "");
    if (!cuts.is_array() || cuts.empty()) refuse("cuts is no list of sublayer counts");
    for (const Json& cut : cuts) {
      profile.cuts.push_back(whole(cut, fmt::format("cuts[{}]", profile.cuts.size()), 0, max_sublayers));
    }
    if (!std::is_sorted(profile.cuts.begin(), profile.cuts.end())) refuse("cuts does not ascend");
    if (!chunks.is_array() || chunks.size() != cuts.size()) {
      refuse(fmt::format("chunks must be a list as long as cuts, which has {}", cuts.size()));
    }
    for (const Json& chunk : chunks)
      profile.times.push_back(read_chunk(chunk, fmt::format("chunks[{}]", profile.times.size())));
    return profile;
  }

  [[noreturn]] void refuse(std::string_view why) const { throw InputError(fmt::format("{}: {}", source_, why)); }

 private:
  template <std::size_t n>
  void require_known(const Json& object, const std::array<std::string_view, n>& known, std::string_view where) const {
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string nearest = did_you_mean(key, known);
      refuse(fmt::format("unknown key '{}{}'{}", where, key.substr(0, 60),
                         nearest.empty() ? fmt::format("; legal here are {}", fmt::join(known, ", ")) : nearest));
    }
  }

  const Json& require(const Json& object, const char* key, std::string_view where) const {
    const auto found = object.find(key);
    if (found == object.end()) refuse(fmt::format("no key '{}{}'", where, key));
    return *found;
  }

  int whole(const Json& value, std::string_view what, int least, int most) const {
    if (!value.is_number_integer() || value < least || value > most) {
      refuse(fmt::format("{} is {}, a whole number from {} to {} is needed", what, value.dump().substr(0, 40), least,
                         most));
    }
    return value.get<int>();
  }

  std::optional<SimTime> time(const Json& chunk, std::string_view key, const std::string& where) const {
    const auto found = chunk.find(key);
    if (found == chunk.end() || found->is_null()) return std::nullopt;
    if (!found->is_number() || !std::isfinite(found->get<double>()) || found->get<double>() < 0) {
      refuse(fmt::format("{}.{} is {}, seconds are needed", where, key, found->dump().substr(0, 40)));
    }
    return from_us(found->get<double>() * 1e6, fmt::format("{}: {}.{}", source_, where, key));
  }

  ActionTimes read_chunk(const Json& chunk, const std::string& where) const {
    if (!chunk.is_object()) refuse(fmt::format("{} is no object", where));
    require_known(chunk, chunk_keys, where + ".");
    const std::optional<SimTime> forward = time(chunk, "forward_s", where);
    const std::optional<SimTime> whole = time(chunk, "backward_s", where);
    const std::optional<SimTime> input = time(chunk, "backward_input_s", where);
    const std::optional<SimTime> weight = time(chunk, "backward_weight_s", where);
    if (!forward) refuse(fmt::format("no key '{}.forward_s'", where));
    if (input.has_value() != weight.has_value()) {
      refuse(fmt::format("{} has only one of backward_input_s and backward_weight_s", where));
    }
    if (!whole && !input) {
      refuse(fmt::format("{} has neither backward_s nor backward_input_s and backward_weight_s", where));
    }
    if (input && whole && std::abs((*whole - *input - *weight).count()) > whole->count() / 1000) {
      refuse(fmt::format("{}.backward_s is {} s, its halves together are {}: it must be their sum", where,
                         in_seconds(*whole), in_seconds(*input + *weight)));
    }
    if (input) return {*forward, whole.value_or(*input + *weight), *input, *weight};
    return {*forward, *whole, *whole - *whole / 2, *whole / 2};
  }

  std::string_view source_;
};

InputError measured_with_other_cuts(const Profile& profile, std::span<const int> cuts, std::string_view source) {
  return InputError(
      fmt::format("{}: measured with {} chunks that end at {}, not with {} that end at {}, nor with "
                  "finer ones: give the same depth, --pp, --vp and --cuts",
                  source, profile.cuts.size(), fmt::join(profile.cuts, ","), cuts.size(), fmt::join(cuts, ",")));
}

}  // namespace

Profile make_profile(const Program& program, std::span<const int> cuts, std::span<const Timeline> steps,
                     std::string_view made_by) {
  if (steps.empty()) throw InputError("a profile needs at least one measured step");
  const auto num_chunks = static_cast<std::size_t>(program.layout.num_chunks());
  std::vector<std::array<std::optional<SimTime>, 4>> least(num_chunks);
  for (const Timeline& step : steps) {
    for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
      const std::vector<ComputeStep>& computes = program.ranks[rank].compute;
      for (std::size_t i = 0; i < computes.size(); ++i) {
        const Compute& compute = computes[i].compute;
        const ComputeTimes& times = step.ranks[rank].compute[i];
        std::optional<SimTime>& best = least[compute.chunk.index()][static_cast<std::size_t>(compute.op)];
        best = std::min(best.value_or(SimTime::max()), times.end - times.start);
      }
    }
  }
  Profile profile{.made_by = std::string(made_by),
                  .steps = static_cast<int>(steps.size()),
                  .cuts = std::vector<int>(cuts.begin(), cuts.end()),
                  .times = {}};
  for (std::size_t chunk = 0; chunk < num_chunks; ++chunk) {
    const auto& [forward, whole, input, weight] = least[chunk];
    if (!forward || (!whole && !(input && weight))) {
      throw InputError(fmt::format("chunk {} was not run forward and backward: no profile can be made", chunk));
    }
    ActionTimes times{*forward, whole.value_or(SimTime(0)), input.value_or(SimTime(0)), weight.value_or(SimTime(0))};
    if (!whole) times.backward = *input + *weight;
    if (!input || !weight) {
      times.backward_weight = times.backward / 2;
      times.backward_input = times.backward - times.backward_weight;
    }
    profile.times.push_back(times);
  }
  return profile;
}

std::string to_json(const Profile& profile) {
  std::string text = fmt::format("{{\"plumb_profile\":1,\"made_by\":{},\"steps\":{},\"cuts\":[{}],\"chunks\":[",
                                 Json(profile.made_by).dump(), profile.steps, fmt::join(profile.cuts, ","));
  for (std::size_t chunk = 0; chunk < profile.times.size(); ++chunk) {
    const ActionTimes& times = profile.times[chunk];
    text += fmt::format("{}\n {{\"forward_s\":{},\"backward_s\":{},\"backward_input_s\":{},\"backward_weight_s\":{}}}",
                        chunk == 0 ? "" : ",", in_seconds(times.forward), in_seconds(times.backward),
                        in_seconds(times.backward_input), in_seconds(times.backward_weight));
  }
  return text + "\n]}\n";
}

Profile parse_profile(std::string_view text, std::string_view source) {
  require_plain_json(text, source);
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Reader reader(source);
  if (file.is_discarded()) reader.refuse("not JSON");
  return reader.read(file);
}

Profile load_profile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw InputError(fmt::format("{} is a directory, a profile is needed", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(fmt::format("cannot read the profile {}", path));
  std::string text;
  for (char c = 0; file.get(c);) {
    text.push_back(c);
    if (text.size() > max_profile_bytes) {
      throw InputError(fmt::format("{} is larger than {} MiB, not a profile", path, max_profile_bytes >> 20));
    }
  }
  return parse_profile(text, path);
}

std::vector<ActionTimes> profile_times(const Profile& profile, std::span<const int> cuts, std::string_view source) {
  if (std::equal(profile.cuts.begin(), profile.cuts.end(), cuts.begin(), cuts.end())) return profile.times;
  std::vector<ActionTimes> sums;
  std::size_t next = 0;
  for (const int cut : cuts) {
    ActionTimes& sum = sums.emplace_back();
    for (; next < profile.cuts.size() && profile.cuts[next] <= cut; ++next) {
      sum.forward += profile.times[next].forward;
      sum.backward += profile.times[next].backward;
      sum.backward_input += profile.times[next].backward_input;
      sum.backward_weight += profile.times[next].backward_weight;
    }
    // A chunk without sublayers that the profile does not have is nothing; any other cut must be one of its cuts.
    if (cut != 0 && (next == 0 || profile.cuts[next - 1] != cut)) throw measured_with_other_cuts(profile, cuts, source);
  }
  if (next < profile.cuts.size()) throw measured_with_other_cuts(profile, cuts, source);
  return sums;
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/megatron_layout.hpp"
#include "support.hpp"

namespace plumb {
namespace {

using Catch::Matchers::Contains;
using test::input_error_of;

std::string megatron_refusal(std::string_view text) {
  return input_error_of([&] { (void)parse_megatron_layout(text); });
}

std::vector<int> layers_of(std::string_view text) {
  std::vector<int> layers;
  for (const MegatronStage& stage : parse_megatron_layout(text).stages) {
    layers.push_back(stage.decoder_layers);
  }
  return layers;
}

}  // namespace

TEST_CASE("a layout string gives the layers of each stage", "[schedule]") {
  const MegatronLayout layout = parse_megatron_layout("Et*3|(tt|)*29,m|L");
  REQUIRE(layout.stages.size() == 32);
  CHECK(layout.stages.front() == MegatronStage{true, 3, 0, false});
  CHECK(layout.stages[1] == MegatronStage{false, 2, 0, false});
  CHECK(layout.stages[29] == MegatronStage{false, 2, 0, false});
  CHECK(layout.stages[30] == MegatronStage{false, 0, 1, false});
  CHECK(layout.stages[31] == MegatronStage{false, 0, 0, true});
  CHECK(layout.decoder_layers() == 61);
  CHECK(layout.mtp_layers() == 1);
  CHECK(layout.virtual_stages(16) == 2);
  CHECK(layout.virtual_stages(32) == 1);
  CHECK(layers_of("EtL") == std::vector{1});
  CHECK(layers_of("Et|(t|t*2|)*2tL") == std::vector{1, 1, 2, 1, 2, 1});
  CHECK(layers_of("E,t,|,t,L") == std::vector{1, 1});
  CHECK(layers_of("Et|t*0|tL") == std::vector{1, 0, 1});
  CHECK(layers_of("Et|(tt|)*0tL") == std::vector{1, 1});
  CHECK(layers_of("Et|*3tL") == std::vector{1, 0, 0, 1});
  CHECK(parse_megatron_layout("Etm*2L").stages == std::vector{MegatronStage{true, 1, 2, true}});
}

TEST_CASE("stages may be empty, and the loss may stand alone or before an empty stage", "[schedule]") {
  CHECK(layers_of("Et||L") == std::vector{1, 0, 0});
  CHECK(layers_of("E||tL") == std::vector{0, 0, 1});
  CHECK(layers_of("E|t|L") == std::vector{0, 1, 0});
  const MegatronLayout last_is_empty = parse_megatron_layout("Et|(tt|)*29L|");
  CHECK(last_is_empty.stages.size() == 32);
  CHECK(last_is_empty.stages[30].loss);
  CHECK(last_is_empty.stages[31] == MegatronStage{});
}

TEST_CASE("a wrong layout is refused with the column", "[schedule]") {
  CHECK_THAT(megatron_refusal(""), Contains("is empty"));
  CHECK_THAT(megatron_refusal("Et |L"), Contains("column 3: a blank"));
  CHECK_THAT(megatron_refusal("Eq|L"), Contains("column 2: \"q\" is unknown"));
  CHECK_THAT(megatron_refusal("Et\xc3\xa4L"), Contains("column 3: \"\\xc3\" is unknown"));
  CHECK_THAT(megatron_refusal("Et*L"), Contains("column 3: a number must follow the *"));
  CHECK_THAT(megatron_refusal("Et*"), Contains("column 3: a number must follow the *"));
  CHECK_THAT(megatron_refusal("Et*03L"), Contains("column 4: the number has leading zeros"));
  CHECK_THAT(megatron_refusal("Et*-1L"), Contains("column 3: a number must follow the *"));
  CHECK_THAT(megatron_refusal("Et*2,9L"),
             Contains("column 6: a number must follow * at once (a comma does not continue it)"));
  CHECK_THAT(megatron_refusal("Et*2*3L"), Contains("column 5: a repetition cannot be repeated again"));
  CHECK_THAT(megatron_refusal("E(t|)*2*3L"), Contains("column 8: a repetition cannot be repeated again"));
  CHECK_THAT(megatron_refusal("*2EtL"), Contains("column 1: * must follow a letter"));
  CHECK_THAT(megatron_refusal("Et2L"), Contains("column 3: a number must follow * at once"));
  CHECK_THAT(megatron_refusal("E(t|L"), Contains("column 2: the closing ) is missing"));
  CHECK_THAT(megatron_refusal("Et|)*2L"), Contains("column 4: a ) without its ("));
  CHECK_THAT(megatron_refusal("E(t(t)*2|)*2L"), Contains("column 4: a group inside a group"));
  CHECK_THAT(megatron_refusal("E(t|)L"), Contains("column 5: *n must follow the )"));
  CHECK_THAT(megatron_refusal("E()*2tL"), Contains("column 2: the group is empty"));
  CHECK_THAT(megatron_refusal("tEL"), Contains("column 1: the first layer must be the embedding E"));
  CHECK_THAT(megatron_refusal("|EtL"), Contains("column 2: the embedding E must be in the first stage"));
  CHECK_THAT(megatron_refusal("EtEL"), Contains("column 3: a second embedding E"));
  CHECK_THAT(megatron_refusal("E*2tL"), Contains("column 1: a second embedding E"));
  CHECK_THAT(megatron_refusal("EtLL"), Contains("column 4: L stands after the loss"));
  CHECK_THAT(megatron_refusal("EtL*2"), Contains("column 3: a second loss L"));
  CHECK_THAT(megatron_refusal("EtLt"), Contains("column 4: t stands after the loss"));
  CHECK_THAT(megatron_refusal("Et|t"), Contains("column 5: no loss L"));
  CHECK_THAT(megatron_refusal("L"), Contains("column 1: the first layer must be the embedding E"));
  CHECK_THAT(megatron_refusal("|||"), Contains("no embedding E"));
  CHECK_THAT(megatron_refusal("EL"), Contains("no decoder layer t"));
  CHECK_THAT(megatron_refusal("Etm|tL"), Contains("column 5: a decoder layer t stands after"));
  // The example of Megatron's own help text: the m layers lie in two stages.
  CHECK_THAT(megatron_refusal("E|(t|)*3,m|m||L"),
             Contains("column 12: all m must be in one stage, the first is in stage 4"));
}

TEST_CASE("stages must fall evenly on the ranks and m layers in the last chunk of one", "[schedule]") {
  const auto why = [](std::string_view text, int pp) {
    return input_error_of([&] { (void)parse_megatron_layout(text).virtual_stages(pp); });
  };
  CHECK_THAT(why("Et|t|tL", 2),
             Contains("3 stages") && Contains("not fall evenly on 2 ranks") && Contains("the nearest are 2 and 4"));
  CHECK_THAT(why("EtL", 4), Contains("the nearest are 4 and 8"));
  CHECK_THAT(why("EtL", 0), Contains("on 0 ranks"));
  CHECK_THAT(why("Et|tm||L", 2), Contains("the layers m are in stage 1") && Contains("stages 2 to 3"));
  CHECK(parse_megatron_layout("Et|t|m|L").virtual_stages(2) == 2);
  CHECK(parse_megatron_layout("Et|tm||L").virtual_stages(4) == 1);
}

TEST_CASE("a layout that grows without bound is refused before it grows", "[schedule]") {
  CHECK_THAT(megatron_refusal("Et*99999999999999999999L"), Contains("column 4: repeats more than 1048576 times"));
  CHECK_THAT(megatron_refusal("E(t*1000000|)*1000000L"), Contains("more than 524288 layers"));
  CHECK_THAT(megatron_refusal("Et|*1000000L"), Contains("column 3: more than 65536 stages"));
  CHECK_THAT(megatron_refusal("E(t|)*65536L"), Contains("more than 65536 stages"));
  CHECK_THAT(megatron_refusal("E(t*0|*0)*1000000L"), Contains("no decoder layer t"));
  CHECK_THAT(megatron_refusal(std::string((std::size_t{1} << 20) + 1, 't')), Contains("too long"));
  CHECK(layers_of("E(t|)*65535L").size() == 65536);
  CHECK(layers_of("Et*524286L") == std::vector{524286});
}

TEST_CASE("cuts count two sublayers per decoder layer and none for the layers behind the depth", "[schedule]") {
  CHECK(parse_megatron_layout("Et|tt||m|L").cuts() == std::vector{2, 6, 6, 6, 6});
  const MegatronLayout k3 = parse_megatron_layout("Et*2|(t*3|)*30tL");
  CHECK_NOTHROW(DepthMap(2 * k3.decoder_layers(), 24, k3.cuts()));
  CHECK(k3.cuts().back() == 186);
}

TEST_CASE("a layout string is written from cuts", "[schedule]") {
  CHECK(megatron_layout_text(std::vector{2}) == "EtL");
  CHECK(megatron_layout_text(std::vector{6, 8, 10, 12, 14}) == "Et*3|(t|)*3tL");
  CHECK(megatron_layout_text(std::vector{0, 2, 2, 2, 2, 4}) == "E|t||*3tL");
  CHECK(megatron_layout_text(std::vector{4, 8}) == "Ett|ttL");
  CHECK_THAT(input_error_of([] { (void)megatron_layout_text(std::vector{3, 6}); }), Contains("the cut at 3 sublayers"));
  CHECK_THAT(input_error_of([] { (void)megatron_layout_text(std::vector{4, 2}); }), Contains("the cut at 2"));
  CHECK_THAT(input_error_of([] { (void)megatron_layout_text({}); }), Contains("at least one stage"));
}

TEST_CASE("cuts written as a layout string are read back", "[schedule]") {
  std::mt19937 random(21);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<int> cuts;
    int end = 0;
    for (int stages = std::uniform_int_distribution(1, 40)(random); stages > 0; --stages) {
      // Runs of equal stages, so that groups occur.
      const int layers = std::uniform_int_distribution(0, 3)(random);
      for (int run = std::uniform_int_distribution(1, 4)(random); run > 0; --run) {
        cuts.push_back(end += 2 * layers);
      }
    }
    if (end == 0) continue;
    const std::string text = megatron_layout_text(cuts);
    INFO(text);
    REQUIRE(parse_megatron_layout(text).cuts() == cuts);
  }
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/megatron_layout.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "quote.hpp"
#include "token_reader.hpp"

namespace plumb {
namespace {

constexpr int sublayers_per_decoder_layer = 2;
constexpr std::size_t max_layout_bytes = std::size_t{1} << 20;
constexpr std::size_t max_stages = 65536;     // the chunks of a Layout
constexpr std::int64_t max_layers = 1 << 19;  // 2^20 sublayers, the deepest DepthMap
constexpr std::int64_t max_repetition = 1 << 20;

// A letter or | with how often it stands there, and where it was written.
struct Symbol {
  char letter = 0;
  std::int64_t times = 1;
  std::size_t column = 0;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  MegatronLayout parse() {
    if (text_.empty()) throw InputError("the layout is empty: the least is \"E|tL\" or \"EtL\"");
    if (text_.size() > max_layout_bytes) {
      throw InputError(
          fmt::format("a layout of {} characters is too long, at most {} are read", text_.size(), max_layout_bytes));
    }
    layout_.stages.emplace_back();
    while (at_ < text_.size()) {
      if (text_[at_] == ',') {
        ++at_;
      } else if (text_[at_] == '(') {
        group();
      } else {
        place(symbol());
      }
    }
    finish();
    return std::move(layout_);
  }

 private:
  [[noreturn]] void fail(std::size_t column, std::string_view why) const {
    throw InputError(fmt::format("layout {}: column {}: {}", quoted(text_), column + 1, why));
  }

  // One letter or |, with its *n if there is one.
  Symbol symbol() {
    const char c = text_[at_];
    const std::size_t column = at_;
    switch (c) {
      case 'E':
      case 't':
      case 'm':
      case 'L':
      case '|':
        break;
      case '(':
        fail(column, "a group inside a group; groups do not nest");
      case ')':
        fail(column, "a ) without its (");
      case '*':
        fail(column, column > 0 && is_digit(text_[column - 1]) ? "a repetition cannot be repeated again"
                                                               : "* must follow a letter, | or ) at once");
      case ' ':
      case '\t':
        fail(column, "a blank; the layout is one word");
      default:
        fail(column, is_digit(c) ? "a number must follow * at once (a comma does not continue it)"
                                 : fmt::format("{} is unknown, legal are E t m L | , and (..)*n, x*n",
                                               quoted(text_.substr(column, 1))));
    }
    ++at_;
    return {c, repetition().value_or(1), column};
  }

  // "*n" at the current place, or nothing.
  std::optional<std::int64_t> repetition() {
    if (at_ == text_.size() || text_[at_] != '*') return std::nullopt;
    const std::size_t star = at_++;
    if (at_ == text_.size() || !is_digit(text_[at_])) fail(star, "a number must follow the *");
    if (text_[at_] == '0' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1])) {
      fail(at_, "the number has leading zeros");
    }
    std::int64_t times = 0;
    for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
      times = times * 10 + (text_[at_] - '0');
      if (times > max_repetition) fail(star + 1, fmt::format("repeats more than {} times", max_repetition));
    }
    return times;
  }

  void group() {
    const std::size_t open = at_++;
    std::vector<Symbol> symbols;
    bool has_letter = false;  // with |*0 or a comma alone nothing would bound the work by what it makes
    while (at_ < text_.size() && text_[at_] != ')') {
      if (text_[at_] == ',') {
        ++at_;
        continue;
      }
      symbols.push_back(symbol());
      has_letter = has_letter || symbols.back().times > 0;
    }
    if (at_ == text_.size()) fail(open, "the closing ) is missing");
    if (symbols.empty()) fail(open, "the group is empty");
    ++at_;
    const std::optional<std::int64_t> times = repetition();
    if (!times) fail(at_ - 1, "*n must follow the ) of a group at once");
    for (std::int64_t i = 0; has_letter && i < *times; ++i) {
      for (const Symbol& symbol : symbols) {
        place(symbol);
      }
    }
  }

  // Appends to the stages. Every failure of a rule names the column of the letter that breaks it.
  void place(const Symbol& symbol) {
    if (symbol.times == 0) return;
    MegatronStage& stage = layout_.stages.back();
    if (symbol.letter == '|') {
      if (layout_.stages.size() + static_cast<std::size_t>(symbol.times) > max_stages) {
        fail(symbol.column, fmt::format("more than {} stages", max_stages));
      }
      layout_.stages.resize(layout_.stages.size() + static_cast<std::size_t>(symbol.times));
      return;
    }
    if (loss_)
      fail(symbol.column, fmt::format("{} stands after the loss L, which must be the last layer", symbol.letter));
    if (symbol.letter != 'E' && !embedding_) fail(symbol.column, "the first layer must be the embedding E");
    num_layers_ += symbol.times;
    if (num_layers_ > max_layers) fail(symbol.column, fmt::format("more than {} layers", max_layers));
    const auto times = static_cast<int>(symbol.times);
    switch (symbol.letter) {
      case 'E':
        if (embedding_ || times > 1) fail(symbol.column, "a second embedding E");
        if (layout_.stages.size() > 1) fail(symbol.column, "the embedding E must be in the first stage");
        embedding_ = stage.embedding = true;
        break;
      case 't':
        if (mtp_stage_) fail(symbol.column, "a decoder layer t stands after a multi-token-prediction layer m");
        stage.decoder_layers += times;
        break;
      case 'm':
        if (mtp_stage_ && *mtp_stage_ + 1 != layout_.stages.size()) {
          fail(symbol.column, fmt::format("all m must be in one stage, the first is in stage {}", *mtp_stage_));
        }
        mtp_stage_ = layout_.stages.size() - 1;
        stage.mtp_layers += times;
        break;
      default:
        if (times > 1) fail(symbol.column, "a second loss L");
        loss_ = stage.loss = true;
    }
  }

  void finish() {
    if (!embedding_) fail(text_.size(), "no embedding E");
    if (!loss_) fail(text_.size(), "no loss L at the end");
    if (layout_.decoder_layers() == 0) fail(text_.size(), "no decoder layer t");
  }

  std::string_view text_;
  std::size_t at_ = 0;
  MegatronLayout layout_;
  std::int64_t num_layers_ = 0;
  bool embedding_ = false;
  bool loss_ = false;
  std::optional<std::size_t> mtp_stage_;
};

std::string stage_text(int decoder_layers) {
  if (decoder_layers > 2) return fmt::format("t*{}", decoder_layers);
  return std::string(static_cast<std::size_t>(decoder_layers), 't');
}

}  // namespace

int MegatronLayout::decoder_layers() const {
  return std::accumulate(stages.begin(), stages.end(), 0,
                         [](int sum, const MegatronStage& stage) { return sum + stage.decoder_layers; });
}

int MegatronLayout::mtp_layers() const {
  return std::accumulate(stages.begin(), stages.end(), 0,
                         [](int sum, const MegatronStage& stage) { return sum + stage.mtp_layers; });
}

int MegatronLayout::virtual_stages(int pp) const {
  const auto num_stages = static_cast<int>(stages.size());
  if (pp < 1) throw InputError(fmt::format("a layout cannot lie on {} ranks, at least 1 is needed", pp));
  if (num_stages % pp != 0) {
    const int fewer = std::max(num_stages / pp, 1) * pp;
    throw InputError(
        fmt::format("{} stages of the layout do not fall evenly on {} ranks; the nearest are {} and {} stages",
                    num_stages, pp, fewer, fewer + pp));
  }
  const int vp = num_stages / pp;
  const auto mtp = std::find_if(stages.begin(), stages.end(), [](const MegatronStage& s) { return s.mtp_layers > 0; });
  const auto place = static_cast<int>(mtp - stages.begin());
  if (mtp != stages.end() && place / pp != vp - 1) {
    throw InputError(
        fmt::format("the layers m are in stage {} of the layout, chunk {} of rank {}; they must be in the "
                    "last chunk of a rank, stages {} to {}",
                    place, place / pp, place % pp, num_stages - pp, num_stages - 1));
  }
  return vp;
}

std::vector<int> MegatronLayout::cuts() const {
  std::vector<int> cuts;
  int end = 0;
  for (const MegatronStage& stage : stages) {
    end += sublayers_per_decoder_layer * stage.decoder_layers;
    cuts.push_back(end);
  }
  return cuts;
}

MegatronLayout parse_megatron_layout(std::string_view text) { return Parser(text).parse(); }

std::string megatron_layout_text(std::span<const int> cuts) {
  if (cuts.empty()) throw InputError("a layout needs at least one stage");
  std::vector<std::string> stages;
  int begin = 0;
  for (const int end : cuts) {
    if (end < begin || end % sublayers_per_decoder_layer != 0) {
      throw InputError(
          fmt::format("the cut at {} sublayers has no place in a Megatron layout: stages hold whole decoder "
                      "layers of {} sublayers",
                      end, sublayers_per_decoder_layer));
    }
    stages.push_back(stage_text((end - begin) / sublayers_per_decoder_layer));
    begin = end;
  }
  stages.front().insert(0, "E");
  std::string text;
  for (std::size_t i = 0; i < stages.size();) {
    // The last stage has no | of its own and stays out of groups.
    std::size_t run_end = i + 1;
    while (run_end + 1 < stages.size() && stages[run_end] == stages[i]) {
      ++run_end;
    }
    if (run_end - i > 2 && run_end < stages.size()) {
      text += stages[i].empty() ? fmt::format("|*{}", run_end - i) : fmt::format("({}|)*{}", stages[i], run_end - i);
      i = run_end;
      continue;
    }
    text += stages[i] + (i + 1 < stages.size() ? "|" : "");
    ++i;
  }
  return text + "L";
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include "simulator/support/html_reader.hpp"

#include <map>
#include <stdexcept>

namespace plumb::test {
namespace {

class Numbers {
 public:
  explicit Numbers(std::string_view letters) {
    std::uint32_t bits = 0;
    int have = 0;
    for (const char c : letters) {
      if (c == '=') break;
      const std::size_t value = alphabet.find(c);
      if (value == std::string_view::npos) throw std::runtime_error("a letter that is not base64");
      bits = bits << 6 | static_cast<std::uint32_t>(value);
      have += 6;
      if (have < 8) continue;
      have -= 8;
      bytes_ += static_cast<char>(bits >> have & 0xFF);
    }
  }
  std::int64_t next() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      if (at_ >= bytes_.size() || shift > 63) throw std::runtime_error("the stream is cut off");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return static_cast<std::int64_t>(value);
    }
  }
  std::int64_t next_signed() {
    const std::int64_t value = next();
    return value % 2 == 0 ? value / 2 : -(value / 2) - 1;
  }
  int next_int() { return static_cast<int>(next()); }
  void require_end() const {
    if (at_ != bytes_.size()) throw std::runtime_error("the stream goes on");
  }

 private:
  static constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes_;
  std::size_t at_ = 0;
};

std::string without(std::string text, std::string_view open, std::string_view close) {
  for (std::size_t from = text.find(open); from != std::string::npos; from = text.find(open, from + 1)) {
    const std::size_t begin = text.find('>', from) + 1;
    text.erase(begin, text.find(close, begin) - begin);
  }
  return text;
}

}  // namespace

std::string script_of(std::string_view page, std::string_view id) {
  const std::string mark = "id=\"" + std::string(id) + "\">";
  std::size_t from = page.find("<script");
  for (; from != std::string_view::npos; from = page.find("<script", from + 1)) {
    const std::size_t begin = page.find('>', from) + 1;
    if (page.substr(from, begin - from).ends_with(mark))
      return std::string(page.substr(begin, page.find("</script>", begin) - begin));
  }
  return {};
}

XmlDocument markup_of(std::string_view page) {
  page.remove_prefix(page.find("<html"));
  return parse_xml(without(without(std::string(page), "<script", "</script>"), "<style", "</style>"));
}

std::vector<std::vector<PageAction>> actions_of(std::string_view page, int num_ranks, int num_stages) {
  Numbers numbers(script_of(page, "actions"));
  std::vector<std::vector<PageAction>> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    struct Kind {
      int microbatch = -1;
      std::int64_t duration = -1;
    };
    std::vector<Kind> kinds(static_cast<std::size_t>(num_stages) * 4);
    std::vector<PageAction>& actions = ranks.emplace_back();
    PageAction action;
    for (std::int64_t left = numbers.next(); left > 0; --left) {
      const std::int64_t flags = numbers.next();
      const std::int64_t free_since = action.end;
      action.op = static_cast<Op>(flags >> 5 & 3);
      if ((flags & 128) != 0) action.stage = numbers.next_int();
      Kind& kind = kinds.at(static_cast<std::size_t>(action.stage * 4 + (flags >> 5 & 3)));
      const std::int64_t idle = (flags & 1) != 0 ? numbers.next() : 0;
      action.exposed = (flags & 16) != 0 ? numbers.next() : (flags & 8) != 0 ? idle : 0;
      kind.microbatch += 1 + ((flags & 2) != 0 ? static_cast<int>(numbers.next_signed()) : 0);
      if ((flags & 4) != 0) kind.duration = numbers.next();
      action.microbatch = kind.microbatch;
      action.start = free_since + idle;
      action.end = action.start + kind.duration;
      action.transfer = -1;
      if ((flags & 8) != 0) {
        const int transfer = numbers.next_int();
        action.transfer = transfer / 2;
        action.backward = transfer % 2 != 0;
        action.transfer_microbatch = action.microbatch + static_cast<int>(numbers.next_signed());
      }
      actions.push_back(action);
    }
  }
  numbers.require_end();
  return ranks;
}

std::vector<PageMessage> messages_of(std::string_view page, std::size_t num_transfers) {
  Numbers numbers(script_of(page, "messages"));
  struct Last {
    std::int64_t microbatch = -1;
    std::int64_t moving = -1;
    std::int64_t latency = -1;
  };
  std::vector<Last> lasts(num_transfers * 2);
  std::vector<PageMessage> messages;
  PageMessage message;
  for (std::int64_t left = numbers.next(); left > 0; --left) {
    const std::int64_t flags = numbers.next();
    message.backward = (flags & 1) != 0;
    message.transfer += numbers.next_signed();
    Last& last = lasts.at(static_cast<std::size_t>(message.transfer * 2 + (flags & 1)));
    last.microbatch += 1 + numbers.next_signed();
    message.microbatch = last.microbatch;
    message.start += numbers.next_signed();
    if ((flags & 2) != 0) last.moving = numbers.next_signed();
    if ((flags & 4) != 0) last.latency = numbers.next_signed();
    message.sent = message.start + last.moving;
    message.arrived = message.sent + last.latency;
    message.ready = message.start - ((flags & 8) != 0 ? numbers.next() : 0);
    message.posted = message.start - ((flags & 16) != 0 ? numbers.next() : 0);
    messages.push_back(message);
  }
  numbers.require_end();
  return messages;
}

std::vector<PagePiece> path_of(std::string_view page) {
  Numbers numbers(script_of(page, "path"));
  std::vector<PagePiece> path;
  std::int64_t at = 0;
  for (std::int64_t left = numbers.next(); left > 0; --left) {
    PagePiece& piece = path.emplace_back();
    piece.kind = numbers.next_int();
    piece.rank = numbers.next_int();
    piece.to = piece.kind == 3 || piece.kind == 4 ? numbers.next_int() : piece.rank;
    piece.begin = at;
    piece.end = at += numbers.next();
  }
  numbers.require_end();
  return path;
}

std::vector<std::vector<PageMemoryPoint>> memory_of(std::string_view page, int num_ranks, std::size_t num_classes) {
  Numbers numbers(script_of(page, "memory"));
  std::vector<std::vector<PageMemoryPoint>> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    PageMemoryPoint point;
    point.bytes.assign(num_classes, 0);
    std::vector<PageMemoryPoint>& points = ranks.emplace_back();
    for (std::int64_t left = numbers.next(); left > 0; --left) {
      point.at += numbers.next();
      for (std::int64_t& bytes : point.bytes)
        bytes += numbers.next_signed();
      point.chunks += numbers.next_signed();
      points.push_back(point);
    }
  }
  numbers.require_end();
  return ranks;
}

}  // namespace plumb::test

// SPDX-License-Identifier: Apache-2.0
//
// Writes the Program JSON: one line per step, in the common order, so that a person can read it from top to bottom.
// Written piece by piece, because a document tree of a large program would take several times its memory.
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "encode_names.hpp"
#include "plumb/cache/encode.hpp"
#include "plumb/schedule/invariant.hpp"

namespace plumb {
namespace {

class Writer {
 public:
  std::string write(const Program& program) {
    constexpr std::size_t bytes_per_step = 200;  // a little more than measured; only saves copies
    std::size_t num_steps = program.messages.size() / 8;
    for (const RankProgram& rank : program.ranks) {
      num_steps += rank.order.size();
    }
    text_.reserve(num_steps * bytes_per_step);
    put("{{\"format\":\"{}\",\"version\":{},\n", json_names::format, json_names::version);
    put("\"layout\":{{\"pp\":{},\"vp\":{},\"microbatches\":{},\"placement\":\"{}\"}},\n", program.layout.pp(),
        program.layout.vp(), program.layout.microbatches(), to_string(program.layout.placement()));
    put("\"depth\":{{\"sublayers\":{},\"block_sublayers\":{},\"residual\":\"{}\",\"cuts\":[{}]}},\n",
        program.depth.sublayers(), program.depth.block_sublayers(), to_string(program.depth.residual()),
        fmt::join(program.depth.cuts(), ","));
    // A schedule's name may be a file name: quote it, and show bytes that are not UTF-8 as the replacement character.
    using nlohmann::json;
    put("\"schedule\":{},\"forward_only\":{},\"post_ahead\":{},\n",
        json(program.schedule_name).dump(-1, ' ', true, json::error_handler_t::replace), program.forward_only,
        program.post_ahead);
    routing(program.routing);
    put("\"messages\":[");
    list(program.messages, [&](const Message& message) {
      put("\n[{},{},\"{}\"]", message.transfer.value, message.microbatch.value,
          name(json_names::directions, message.direction));
    });
    put("],\n\"ranks\":[");
    list(program.ranks, [&](const RankProgram& rank) { this->rank(rank); });
    put("]}}\n");
    return std::move(text_);
  }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  template <class Items, class Put>
  void list(const Items& items, Put&& put_one) {
    bool first = true;
    for (const auto& item : items) {
      if (!first) text_.push_back(',');
      first = false;
      put_one(item);
    }
  }

  template <std::size_t N, class Enum>
  static std::string_view name(const std::array<std::string_view, N>& names, Enum value) {
    return names[static_cast<std::size_t>(value)];
  }

  template <class Ids>
  void ids(std::string_view key, const Ids& values) {
    put(",\"{}\":[", key);
    list(values, [&](auto id) { put("{}", id.value); });
    put("]");
  }

  template <class Lists>
  void lists(std::string_view key, const Lists& all) {
    put(",\n\"{}\":[", key);
    list(all, [&](const auto& ids) {
      put("[");
      list(ids, [&](auto id) { put("{}", id.value); });
      put("]");
    });
    put("]");
  }

  void routing(const Routing& routing) {
    put("\"routing\":{{\"cache\":\"{}\",\"holdings\":[", to_string(routing.policy));
    list(routing.holdings, [&](const Holding& holding) {
      put("\n{{\"block\":{},\"rank\":{},\"bringer\":{},\"parent\":{},\"transfer\":{}", holding.block.value,
          holding.rank.value, holding.bringer.value, holding.parent.value, holding.transfer.value);
      ids("children", holding.children);
      ids("readers", holding.readers);
      put("}}");
    });
    put("],\n\"transfers\":[");
    list(routing.transfers, [&](const Transfer& transfer) {
      put("\n{{\"from\":{},\"to\":{},\"from_chunk\":{},\"to_chunk\":{},\"lane\":\"{}\",\"partial\":{}",
          transfer.from.value, transfer.to.value, transfer.from_chunk.value, transfer.to_chunk.value,
          name(json_names::lanes, transfer.lane), transfer.partial);
      ids("holdings", transfer.holdings);
      put(",\"after_arrival\":{},\"after_chunk\":{}}}", transfer.after_arrival.value, transfer.after_chunk.value);
    });
    put("]");
    lists("into_chunk", routing.into_chunk);
    lists("after_chunk", routing.after_chunk);
    ids("root", routing.root);
    lists("holdings_of", routing.holdings_of);
    put("}},\n");
  }

  void rank(const RankProgram& rank) {
    put("\n{{\"num_value_slots\":{},\"num_gradient_slots\":{},\"steps\":[", rank.num_value_slots,
        rank.num_gradient_slots);
    std::int32_t next_compute = 0;
    std::int32_t next_comm = 0;
    list(rank.order, [&](const StepRef& step) {
      std::int32_t& next = step.comm ? next_comm : next_compute;
      require(step.index == next, [&] {
        return fmt::format("program: step {} stands in the common order where step {} of its list is due", step.index,
                           next);
      });
      ++next;
      if (step.comm) {
        comm(rank, rank.comm[static_cast<std::size_t>(step.index)]);
      } else {
        compute(rank, rank.compute[static_cast<std::size_t>(step.index)]);
      }
    });
    put("]}}");
  }

  // Steps are nearly all of the text, so they are put together from pieces instead of formatted.
  void text(std::string_view piece) { text_.append(piece); }
  void number(std::int32_t value) {
    const fmt::format_int digits(value);
    text_.append(digits.data(), digits.size());
  }
  void lettered(char letter, std::int32_t value) {
    const char opening[] = {'"', letter};
    text_.append(opening, 2);
    number(value);
    text_.push_back('"');
  }
  static std::string_view truth(bool value) { return value ? "true" : "false"; }

  void compute(const RankProgram& rank, const ComputeStep& step) {
    text("\n{\"run\":\"");
    text(to_string(step.compute));
    text("\",\"overlaps_next\":");
    text(truth(step.overlaps_next));
    waits(rank, step.waits);
    text(",\"operands\":[");
    list(rank.operands_of(step.operands), [&](const Operand& operand) {
      text("[\"");
      text(name(json_names::roles, operand.role));
      text("\",");
      number(operand.block.value);
      text(",");
      number(operand.slot);
      text(operand.first_touch ? ",true]" : ",false]");
    });
    text("]");
    releases(rank, step.releases);
    text("}");
  }

  void comm(const RankProgram& rank, const CommStep& step) {
    text("\n{\"do\":\"");
    text(name(json_names::comm_kinds, step.kind));
    text("\",\"first_touch\":");
    text(truth(step.first_touch));
    text(",\"lane\":\"");
    text(name(json_names::lanes, step.lane));
    text("\",\"peer\":");
    number(step.peer.value);
    text(",\"message\":");
    number(step.message.value);
    text(",\"holding\":");
    number(step.holding.value);
    waits(rank, step.waits);
    text(",\"segments\":[");
    list(rank.segments_of(step.segments), [&](const Slot& slot) { this->slot(slot); });
    text("]");
    releases(rank, step.releases);
    text("}");
  }

  void slot(const Slot& slot) {
    lettered(slot.slot_class == SlotClass::value ? json_names::value_slot : json_names::gradient_slot, slot.index);
  }

  void wait(const Wait& wait) {
    lettered(wait.on == Wait::On::compute ? json_names::compute_wait : json_names::comm_wait, wait.step);
  }

  void waits(const RankProgram& rank, Range range) {
    text(",\"waits\":[");
    list(rank.waits_of(range), [&](const Wait& wait) { this->wait(wait); });
    text("]");
  }

  void releases(const RankProgram& rank, Range range) {
    text(",\"releases\":[");
    list(rank.releases_of(range), [&](const Release& release) {
      text("[");
      slot(release.slot);
      for (const Wait& wait : rank.waits_of(release.waits)) {
        text(",");
        this->wait(wait);
      }
      text("]");
    });
    text("]");
  }

  std::string text_;
};

}  // namespace

std::string program_to_json(const Program& program) { return Writer().write(program); }

}  // namespace plumb

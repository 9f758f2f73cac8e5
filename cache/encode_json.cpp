// SPDX-License-Identifier: Apache-2.0
//
// Writes the Program JSON: one line per step, in the common order, so that a person can read it from top to bottom.
// Written piece by piece, because a document tree of a large program would take several times its memory.
#include <array>
#include <iterator>

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
    return fmt::to_string(buffer_);
  }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Args>(args)...);
  }

  template <class Items, class Put>
  void list(const Items& items, Put&& put_one) {
    bool first = true;
    for (const auto& item : items) {
      if (!first) buffer_.push_back(',');
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

  void compute(const RankProgram& rank, const ComputeStep& step) {
    put("\n{{\"run\":\"{}\",\"overlaps_next\":{}", to_string(step.compute), step.overlaps_next);
    waits(rank, step.waits);
    put(",\"operands\":[");
    list(rank.operands_of(step.operands), [&](const Operand& operand) {
      put("[\"{}\",{},{},{}]", name(json_names::roles, operand.role), operand.block.value, operand.slot,
          operand.first_touch);
    });
    put("]");
    releases(rank, step.releases);
    put("}}");
  }

  void comm(const RankProgram& rank, const CommStep& step) {
    put("\n{{\"do\":\"{}\",\"first_touch\":{},\"lane\":\"{}\",\"peer\":{},\"message\":{},\"holding\":{}",
        name(json_names::comm_kinds, step.kind), step.first_touch, name(json_names::lanes, step.lane), step.peer.value,
        step.message.value, step.holding.value);
    waits(rank, step.waits);
    put(",\"segments\":[");
    list(rank.segments_of(step.segments), [&](const Slot& slot) { this->slot(slot); });
    put("]");
    releases(rank, step.releases);
    put("}}");
  }

  void slot(const Slot& slot) {
    put("\"{}{}\"", slot.slot_class == SlotClass::value ? json_names::value_slot : json_names::gradient_slot,
        slot.index);
  }

  void wait(const Wait& wait) {
    put("\"{}{}\"", wait.on == Wait::On::compute ? json_names::compute_wait : json_names::comm_wait, wait.step);
  }

  void waits(const RankProgram& rank, Range range) {
    put(",\"waits\":[");
    list(rank.waits_of(range), [&](const Wait& wait) { this->wait(wait); });
    put("]");
  }

  void releases(const RankProgram& rank, Range range) {
    put(",\"releases\":[");
    list(rank.releases_of(range), [&](const Release& release) {
      put("[");
      slot(release.slot);
      for (const Wait& wait : rank.waits_of(release.waits)) {
        put(",");
        this->wait(wait);
      }
      put("]");
    });
    put("]");
  }

  fmt::memory_buffer buffer_;
};

}  // namespace

std::string program_to_json(const Program& program) { return Writer().write(program); }

}  // namespace plumb

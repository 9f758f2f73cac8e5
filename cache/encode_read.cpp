// SPDX-License-Identifier: Apache-2.0
//
// Reads the Program JSON. A program that comes out of here has every index in range, so that the checks may follow
// them; whether it makes sense is for verify_program and check_deadlock to say. Nothing is allocated for a number in
// the text, only for what the text holds.
#include <charconv>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "encode_names.hpp"
#include "encode_node.hpp"
#include "plumb/cache/encode.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/json_text.hpp"
#include "plumb/schedule/named.hpp"

namespace plumb {
namespace {

constexpr std::int64_t any_positive = INT32_MAX;

JsonNode::Json parse(std::string_view text) {
  require_plain_json(text, "program JSON");
  try {
    return JsonNode::Json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw InputError(fmt::format("program JSON: not JSON, see byte {} of {}", error.byte, text.size()));
  } catch (const nlohmann::json::out_of_range&) {
    throw InputError("program JSON: holds a number that is out of range");
  }
}

// Re-throws what a constructor refuses with the place it came from.
template <class Make>
auto at(const JsonNode& node, Make&& make) {
  try {
    return make();
  } catch (const InputError& error) {
    node.fail(fmt::format("is refused: {}", error.what()));
  }
}

template <class IdType>
IdType id(const JsonNode& node, std::size_t count, bool may_be_absent = false) {
  return IdType(node.integer(may_be_absent ? -1 : 0, static_cast<std::int64_t>(count) - 1));
}

template <class IdType>
std::vector<IdType> ids(const JsonNode& node, std::size_t count) {
  std::vector<IdType> result;
  const std::size_t size = node.size();
  result.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    result.push_back(id<IdType>(node[i], count));
  }
  return result;
}

template <class IdType>
std::vector<std::vector<IdType>> lists(const JsonNode& node, std::size_t size, std::size_t count) {
  node.require_size(size);
  std::vector<std::vector<IdType>> result;
  for (std::size_t i = 0; i < size; ++i) {
    result.push_back(ids<IdType>(node[i], count));
  }
  return result;
}

Layout read_layout(const JsonNode& node) {
  node.require_keys({"pp", "vp", "microbatches", "placement"});
  const std::int32_t pp = node["pp"].integer(1, any_positive);
  const std::int32_t vp = node["vp"].integer(1, any_positive);
  const std::int32_t microbatches = node["microbatches"].integer(1, any_positive);
  const auto placement = static_cast<Placement>(node["placement"].one_of(json_names::placements));
  return at(node, [&] { return Layout(pp, vp, microbatches, placement); });
}

DepthMap read_depth(const JsonNode& node, const Layout& layout) {
  node.require_keys({"sublayers", "block_sublayers", "residual", "cuts"});
  const std::int32_t sublayers = node["sublayers"].integer(1, any_positive);
  const std::int32_t block = node["block_sublayers"].integer(1, any_positive);
  const auto residual = static_cast<Residual>(node["residual"].one_of(json_names::residuals));
  const JsonNode cut_list = node["cuts"];
  cut_list.require_size(static_cast<std::size_t>(layout.num_chunks()));
  std::vector<int> cuts;
  for (std::size_t i = 0; i < cut_list.size(); ++i) {
    cuts.push_back(cut_list[i].integer(0, sublayers));
  }
  return at(node, [&] { return DepthMap(sublayers, block, std::move(cuts), residual); });
}

// A name is for people and may be anybody's own or a file's, but where it is one of ours the layout must be one on
// which that schedule can run.
std::string read_schedule_name(const JsonNode& node, const Layout& layout) {
  std::string name = node.text();
  if (name.empty()) node.fail("is empty: it must be the name of a schedule or of the file it came from");
  for (const ScheduleKind kind : all_schedule_kinds()) {
    if (name != to_string(kind)) continue;
    ScheduleRequest request{.kind = kind};
    if (takes_group(kind)) request.group = layout.microbatches();  // fits whatever group it was
    at(node, [&] { require_fit(request, layout); });
  }
  return name;
}

Routing read_routing(const JsonNode& node, const Layout& layout, const DepthMap& depth) {
  node.require_keys({"cache", "holdings", "transfers", "into_chunk", "after_chunk", "root", "holdings_of"});
  Routing routing;
  routing.policy = static_cast<Policy>(node["cache"].one_of(json_names::policies));
  if ((routing.policy == Policy::standard) != (depth.residual() == Residual::standard)) {
    node["cache"].fail(fmt::format("is \"{}\", which does not fit residual {}", to_string(routing.policy),
                                   to_string(depth.residual())));
  }
  const JsonNode holdings = node["holdings"];
  const JsonNode transfers = node["transfers"];
  const std::size_t num_holdings = holdings.size();
  const std::size_t num_transfers = transfers.size();
  const auto num_blocks = static_cast<std::size_t>(depth.num_sources());
  const auto num_chunks = static_cast<std::size_t>(layout.num_chunks());
  const auto num_ranks = static_cast<std::size_t>(layout.pp());
  for (std::size_t i = 0; i < num_holdings; ++i) {
    const JsonNode item = holdings[i];
    item.require_keys({"block", "rank", "bringer", "parent", "transfer", "children", "readers"});
    Holding holding;
    holding.block = id<BlockId>(item["block"], num_blocks);
    holding.rank = id<RankId>(item["rank"], num_ranks);
    holding.bringer = id<ChunkId>(item["bringer"], num_chunks);
    holding.parent = id<HoldingId>(item["parent"], num_holdings, true);
    holding.transfer = id<TransferId>(item["transfer"], num_transfers, true);
    holding.children = ids<HoldingId>(item["children"], num_holdings);
    holding.readers = ids<ChunkId>(item["readers"], num_chunks);
    routing.holdings.push_back(std::move(holding));
  }
  for (std::size_t i = 0; i < num_transfers; ++i) {
    const JsonNode item = transfers[i];
    item.require_keys(
        {"from", "to", "from_chunk", "to_chunk", "lane", "partial", "holdings", "after_arrival", "after_chunk"});
    Transfer transfer;
    transfer.from = id<RankId>(item["from"], num_ranks);
    transfer.to = id<RankId>(item["to"], num_ranks);
    transfer.from_chunk = id<ChunkId>(item["from_chunk"], num_chunks);
    transfer.to_chunk = id<ChunkId>(item["to_chunk"], num_chunks);
    transfer.lane = static_cast<MessageLane>(item["lane"].one_of(json_names::lanes));
    transfer.partial = item["partial"].boolean();
    transfer.holdings = ids<HoldingId>(item["holdings"], num_holdings);
    transfer.after_arrival = id<TransferId>(item["after_arrival"], num_transfers, true);
    transfer.after_chunk = id<ChunkId>(item["after_chunk"], num_chunks);
    routing.transfers.push_back(std::move(transfer));
  }
  routing.into_chunk = lists<TransferId>(node["into_chunk"], num_chunks, num_transfers);
  routing.after_chunk = lists<TransferId>(node["after_chunk"], num_chunks, num_transfers);
  routing.root = ids<HoldingId>(node["root"], num_holdings);
  node["root"].require_size(num_blocks);
  routing.holdings_of = lists<HoldingId>(node["holdings_of"], num_blocks, num_holdings);
  return routing;
}

// Reads the steps of one rank in the common order.
class RankReader {
 public:
  RankReader(const Program& program, const JsonNode& node) : program_(program), node_(node) {}

  RankProgram read() {
    node_.require_keys({"num_value_slots", "num_gradient_slots", "steps"});
    rank_.num_value_slots = node_["num_value_slots"].integer(0, any_positive);
    rank_.num_gradient_slots = node_["num_gradient_slots"].integer(0, any_positive);
    const JsonNode steps = node_["steps"];
    const std::size_t num_steps = steps.size();
    for (std::size_t i = 0; i < num_steps; ++i) {
      ++(steps[i].has("run") ? num_computes_ : num_comms_);
    }
    for (std::size_t i = 0; i < num_steps; ++i) {
      const JsonNode step = steps[i];
      if (step.has("run")) {
        rank_.order.push_back({false, static_cast<std::int32_t>(rank_.compute.size())});
        rank_.compute.push_back(compute(step));
      } else {
        rank_.order.push_back({true, static_cast<std::int32_t>(rank_.comm.size())});
        rank_.comm.push_back(comm(step));
      }
    }
    // A slot that no step names is never needed; the runtime and the checks allocate what is written here.
    require_used("num_value_slots", rank_.num_value_slots);
    require_used("num_gradient_slots", rank_.num_gradient_slots);
    return std::move(rank_);
  }

 private:
  void require_used(std::string_view key, std::int32_t slots) const {
    const std::size_t mentioned = rank_.operands.size() + rank_.segments.size();
    if (static_cast<std::size_t>(slots) > mentioned) {
      node_[key].fail(fmt::format("is {}, but the steps name slots {} times only", slots, mentioned));
    }
  }

  ComputeStep compute(const JsonNode& node) {
    node.require_keys({"run", "overlaps_next", "waits", "operands", "releases"});
    ComputeStep step;
    const Action action = at(node["run"], [&] { return parse_action(node["run"].text()); });
    if (action.second) node["run"].fail("is a pair, it must be one computation");
    step.compute = action.first;
    if (step.compute.chunk.value >= program_.layout.num_chunks() ||
        step.compute.microbatch.value >= program_.layout.microbatches()) {
      node["run"].fail(fmt::format("is {}, beyond {} chunks and {} microbatches", to_string(step.compute),
                                   program_.layout.num_chunks(), program_.layout.microbatches()));
    }
    step.overlaps_next = node["overlaps_next"].boolean();
    step.waits = waits(node["waits"]);
    step.operands.begin = static_cast<std::uint32_t>(rank_.operands.size());
    const JsonNode operands = node["operands"];
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const JsonNode item = operands[i];
      item.require_size(4);
      const auto role = static_cast<Role>(item[std::size_t{0}].one_of(json_names::roles));
      const int num_blocks = std::max(program_.depth.num_sources(), 1);  // a partial's block is 0 and means nothing
      const auto block = id<BlockId>(item[std::size_t{1}], static_cast<std::size_t>(num_blocks));
      const std::int32_t slot = item[std::size_t{2}].integer(0, num_slots(slot_class(role)) - 1);
      rank_.operands.push_back({role, item[std::size_t{3}].boolean(), slot, block});
    }
    step.operands.end = static_cast<std::uint32_t>(rank_.operands.size());
    step.releases = releases(node["releases"]);
    return step;
  }

  CommStep comm(const JsonNode& node) {
    node.require_keys({"do", "first_touch", "lane", "peer", "message", "holding", "waits", "segments", "releases"});
    CommStep step;
    step.kind = static_cast<CommKind>(node["do"].one_of(json_names::comm_kinds));
    step.first_touch = node["first_touch"].boolean();
    step.lane = static_cast<MessageLane>(node["lane"].one_of(json_names::lanes));
    step.peer = id<RankId>(node["peer"], static_cast<std::size_t>(program_.layout.pp()));
    step.message = id<MessageId>(node["message"], program_.messages.size());
    const bool needs_holding = step.kind == CommKind::add || step.kind == CommKind::zero;
    step.holding = id<HoldingId>(node["holding"], program_.routing.holdings.size(), !needs_holding);
    step.waits = waits(node["waits"]);
    step.segments.begin = static_cast<std::uint32_t>(rank_.segments.size());
    const JsonNode segments = node["segments"];
    for (std::size_t i = 0; i < segments.size(); ++i) {
      rank_.segments.push_back(slot(segments[i]));
    }
    step.segments.end = static_cast<std::uint32_t>(rank_.segments.size());
    step.releases = releases(node["releases"]);
    return step;
  }

  std::int32_t num_slots(SlotClass slot_class) const {
    return slot_class == SlotClass::value ? rank_.num_value_slots : rank_.num_gradient_slots;
  }

  // "v3" -> 3 if the letter is right, without leading zeros or anything after it.
  static std::optional<std::int32_t> numbered(std::string_view text, char letter) {
    if (text.size() < 2 || text.front() != letter || (text[1] == '0' && text.size() > 2) || text[1] == '-') return {};
    std::int32_t number = 0;
    const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size()) return {};
    return number;
  }

  // A letter and a number: `first` counts up to `num_first`, `second` up to `num_second`.
  static std::pair<bool, std::int32_t> choose(const JsonNode& node, char first, std::size_t num_first, char second,
                                              std::size_t num_second) {
    const std::string& text = node.text();
    const auto in_range = [](std::optional<std::int32_t> n, std::size_t count) {
      return n && static_cast<std::size_t>(*n) < count;
    };
    const std::optional<std::int32_t> a = numbered(text, first);
    if (in_range(a, num_first)) return {true, *a};
    const std::optional<std::int32_t> b = numbered(text, second);
    if (in_range(b, num_second)) return {false, *b};
    node.fail(fmt::format("must be {} and a number below {}, or {} and a number below {}", first, num_first, second,
                          num_second));
  }

  Slot slot(const JsonNode& node) const {
    const auto [value, index] = choose(node, json_names::value_slot, static_cast<std::size_t>(rank_.num_value_slots),
                                       json_names::gradient_slot, static_cast<std::size_t>(rank_.num_gradient_slots));
    return {value ? SlotClass::value : SlotClass::gradient, index};
  }

  // `begin`: 1 skips the slot that opens a release.
  Range waits(const JsonNode& node, std::size_t begin = 0) {
    Range range{static_cast<std::uint32_t>(rank_.waits.size()), 0};
    for (std::size_t i = begin; i < node.size(); ++i) {
      const auto [compute, index] =
          choose(node[i], json_names::compute_wait, num_computes_, json_names::comm_wait, num_comms_);
      rank_.waits.push_back({compute ? Wait::On::compute : Wait::On::comm, index});
    }
    range.end = static_cast<std::uint32_t>(rank_.waits.size());
    return range;
  }

  Range releases(const JsonNode& node) {
    Range range{static_cast<std::uint32_t>(rank_.releases.size()), 0};
    for (std::size_t i = 0; i < node.size(); ++i) {
      const JsonNode item = node[i];
      if (item.size() == 0) item.fail("is empty, it must begin with a slot");
      const Slot released = slot(item[std::size_t{0}]);
      rank_.releases.push_back({released, waits(item, 1)});
    }
    range.end = static_cast<std::uint32_t>(rank_.releases.size());
    return range;
  }

  const Program& program_;
  const JsonNode& node_;
  RankProgram rank_;
  std::size_t num_computes_ = 0;
  std::size_t num_comms_ = 0;
};

void read_messages(const JsonNode& node, Program& program) {
  const std::size_t size = node.size();
  program.messages.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    const JsonNode item = node[i];
    item.require_size(3);
    Message message;
    message.transfer = id<TransferId>(item[std::size_t{0}], program.routing.transfers.size());
    message.microbatch = id<Microbatch>(item[std::size_t{1}], static_cast<std::size_t>(program.layout.microbatches()));
    message.direction = static_cast<Direction>(item[std::size_t{2}].one_of(json_names::directions));
    program.messages.push_back(message);
  }
}

}  // namespace

Program program_from_json(std::string_view text) {
  const JsonNode::Json document = parse(text);
  const JsonNode root(document);
  root.require_keys({"format", "version", "layout", "depth", "schedule", "forward_only", "post_ahead", "routing",
                     "messages", "ranks"});
  root["format"].one_of({&json_names::format, 1});
  root["version"].integer(json_names::version, json_names::version);
  const Layout layout = read_layout(root["layout"]);
  const DepthMap depth = read_depth(root["depth"], layout);
  Program program{layout,
                  depth,
                  read_routing(root["routing"], layout, depth),
                  read_schedule_name(root["schedule"], layout),
                  root["forward_only"].boolean(),
                  root["post_ahead"].integer(0, 64),
                  {},
                  {}};
  read_messages(root["messages"], program);
  const JsonNode ranks = root["ranks"];
  ranks.require_size(static_cast<std::size_t>(layout.pp()));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const JsonNode node = ranks[i];
    program.ranks.push_back(RankReader(program, node).read());
  }
  return program;
}

}  // namespace plumb

// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <stdexcept>

#include <fmt/format.h>

#include "conformance.hpp"
#include "traffic.hpp"

namespace plumb::testing {
namespace {

std::string text_of(std::int32_t rank, int round) {
  std::string text = fmt::format("rank {} in round {}", rank, round);
  text.resize(text.size() * static_cast<std::size_t>(rank % 3), '\0');  // rank 0 says nothing, others zeros as well
  return text;
}

void everybody_gets_everything(RankEnds ends) {
  ControlPlane& control = ends.control;
  check(control.rank() == ends.transport.rank() && control.size() == ends.transport.size(), "the two ends disagree");
  for (int round = 0; round < 50; ++round) {
    const auto all = control.exchange(text_of(control.rank().value, round), patience);
    check(all.size() == static_cast<std::size_t>(control.size()), "a rank's text is missing");
    for (std::int32_t peer = 0; peer < control.size(); ++peer) {
      check(all[static_cast<std::size_t>(peer)] == text_of(peer, round), fmt::format("wrong text of rank {}", peer));
    }
  }
}

void long_texts_pass(RankEnds ends) {
  const auto letter = [](std::int32_t rank) { return static_cast<char>('a' + rank); };
  const std::size_t size_bytes = 300000;
  const auto all = ends.control.exchange(std::string(size_bytes, letter(ends.control.rank().value)), patience);
  for (std::int32_t peer = 0; peer < ends.control.size(); ++peer) {
    check(all[static_cast<std::size_t>(peer)] == std::string(size_bytes, letter(peer)), "a long text is damaged");
  }
  try {
    ends.control.exchange(std::string(ControlPlane::max_text_bytes + 1, 'x'), patience);
  } catch (const std::invalid_argument&) {
    return ends.control.barrier(patience);  // refused before anything moved
  }
  throw std::runtime_error("a text beyond the limit was accepted");
}

void control_and_data_alternate(RankEnds ends) {
  Transport& t = ends.transport;
  Message out({5000}), in({5000});
  Poster poster(t);
  for (std::uint64_t i = 0; i < 30; ++i) {
    ends.control.barrier(patience);
    out.fill(t.rank(), next_of(t), Lane::urgent, i);
    poster.receive(previous_of(t), Lane::urgent, in);
    poster.send(next_of(t), Lane::urgent, out);
    if (i % 2 == 0) ends.control.exchange("while messages are under way", patience);
    poster.finish_all();
    in.expect(previous_of(t), t.rank(), Lane::urgent, i);
  }
}

constexpr ConformanceCase control_case_list[] = {
    {"everybody gets everything in rank order", 1, everybody_gets_everything},
    {"long texts pass and longer ones are refused", 1, long_texts_pass},
    {"exchanges and messages alternate", 2, control_and_data_alternate},
};

}  // namespace

std::span<const ConformanceCase> control_cases() { return control_case_list; }

}  // namespace plumb::testing

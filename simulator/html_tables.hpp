// SPDX-License-Identifier: Apache-2.0
//
// html_tables.hpp (private): the parts of a page that are there without a script: facts and tables, as HTML.
#pragma once

#include <string>

#include "plumb/simulator/html_page.hpp"

namespace plumb {

// 58720256 as "56.00 MiB".
std::string byte_text(std::int64_t bytes);

// Elements of a description list.
std::string facts_html(const std::vector<HtmlFact>& facts);
std::string figures_html(const std::vector<HtmlFact>& figures);

// A row per rank: every part of its step and what is resident at its peak.
std::string ranks_table(const Program& program, const SimReport& report, const HtmlPage& page,
                        const HtmlLimits& limits);

// A row per pair of chunks with messages.
std::string hops_table(const SimReport& report, const UnitBytes& bytes, int microbatches, const HtmlLimits& limits);

// A row per interface.
std::string loads_table(const HtmlPage& page, SimTime step, const HtmlLimits& limits);

// A row per kind and rank on the longest chain, the longest first.
std::string path_table(const HtmlPage& page, SimTime step, const HtmlLimits& limits);

// A row per x, a column per line.
std::string curve_table(const HtmlCurve& curve);

}  // namespace plumb

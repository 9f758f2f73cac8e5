// SPDX-License-Identifier: Apache-2.0
//
// html_assets.hpp (private): what lies under simulator/html/, put into the library by html/embed.cmake.
#pragma once

#include <span>
#include <string_view>

namespace plumb {

struct HtmlAssets {
  std::string_view skeleton;  // with {{places}} to fill
  std::string_view style;
  std::span<const std::string_view> script;  // one after the other
  // "sha256-..." of exactly these two, for the page's content security policy.
  std::string_view style_hash;
  std::string_view script_hash;
};

HtmlAssets html_assets();

}  // namespace plumb

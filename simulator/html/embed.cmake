# SPDX-License-Identifier: Apache-2.0
# cmake -DHTML=<folder> -DOUT=<file.cpp> -P embed.cmake: the page's files as strings of C++, with their hashes.
# The scripts are one after the other in this order; each is also a file that editors and linters understand.
set(scripts data.js plot.js timeline.js timeline_draw.js charts.js links.js curve.js main.js)

# base64 of a SHA-256, which CMake gives in hexadecimal digits: 63 of them with one 0 bit more make 43 groups of 6 bits.
function(sha256_base64 text result)
  string(SHA256 hex "${text}")
  set(letters ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  set(encoded "")
  string(APPEND hex 00)
  foreach(first RANGE 0 63 3)
    string(SUBSTRING "${hex}" ${first} 3 digits)
    math(EXPR high "0x${digits} >> 6")
    math(EXPR low "0x${digits} & 63")
    string(SUBSTRING ${letters} ${high} 1 one)
    string(SUBSTRING ${letters} ${low} 1 two)
    string(APPEND encoded ${one}${two})
  endforeach()
  string(SUBSTRING ${encoded} 0 43 encoded)
  set(${result} "sha256-${encoded}=" PARENT_SCOPE)
endfunction()

file(READ ${HTML}/page.html skeleton)
file(READ ${HTML}/page.css style)
set(script "'use strict';\n")
set(pieces "R\"plumb(${script})plumb\"")  # compilers need not take a string of 64 KiB
foreach(name IN LISTS scripts)
  file(READ ${HTML}/${name} text)
  string(APPEND script "${text}")
  string(APPEND pieces ",\n  R\"plumb(${text})plumb\"")
endforeach()
foreach(name IN ITEMS style script)
  if("${${name}}" MATCHES "</(script|style)" OR "${${name}}" MATCHES "\\)plumb\"")
    message(FATAL_ERROR "the ${name} of the page holds what would end it")
  endif()
  sha256_base64("${${name}}" ${name}_hash)
endforeach()
file(WRITE ${OUT} "// Made by simulator/html/embed.cmake.
#include \"html_assets.hpp\"

namespace plumb {

static constexpr std::string_view script[] = {
  ${pieces}};

HtmlAssets html_assets() {
  return {R\"plumb(${skeleton})plumb\",
          R\"plumb(${style})plumb\",
          script,
          \"${style_hash}\",
          \"${script_hash}\"};
}

}  // namespace plumb
")

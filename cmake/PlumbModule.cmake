# SPDX-License-Identifier: Apache-2.0
# One function per kind of thing this repository builds, so that each module's CMakeLists.txt is a short declaration.

# Warnings for our own code only. PRIVATE options are not exported, so users of the library never see them.
function(plumb_strict target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual -Wold-style-cast -Wextra-semi
    # g++ 12 reports std::string's own operator+ (GCC bug 105329) as overlapping memory.
    $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond -Wlogical-op -Wno-restrict>
    $<$<BOOL:${PLUMB_WERROR}>:-Werror>)
endfunction()

# plumb_precompile(<target> <group> <libs>): fmt and the standard library take a third of the time of most files. The first
# target of a group compiles them, the others use that. Only under a sanitizer: elsewhere a missing include shall show.
function(plumb_precompile target group)
  if(NOT PLUMB_SANITIZE OR NOT "fmt::fmt" IN_LIST ARGN)
    return()
  endif()
  get_property(owner GLOBAL PROPERTY PLUMB_PRECOMPILED_${group})
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    target_precompile_headers(${target} PRIVATE <algorithm> <array> <cmath> <functional> <map> <memory> <optional> <set> <span>
      <string> <string_view> <variant> <vector> <fmt/format.h>)
    set_property(GLOBAL PROPERTY PLUMB_PRECOMPILED_${group} ${target})
  endif()
endfunction()

# plumb_unite(<target>): with PLUMB_UNITY its files are compiled in groups of eight, which read Catch2 or torch once. A
# missing include may hide in a group, so this is not for modules and programs. Nor under a sanitizer: precompiled headers
# save as much there, and grouped code takes no less time to optimise. A global of one file is no shadow on the next.
# CALL after plumb_strict.
function(plumb_unite target)
  if(PLUMB_UNITY AND NOT PLUMB_SANITIZE)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    target_compile_options(${target} PRIVATE -Wno-shadow)
  endif()
endfunction()

# plumb_program_options(<target>): how programs and what only they share are compiled. Modules do the work; under a sanitizer
# a program's own code takes longer to optimise than to run.
function(plumb_program_options target)
  plumb_strict(${target})
  if(PLUMB_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# plumb_add_module(<name> HEADERS <public headers> SOURCES <files> [PUBLIC <libs>] [PRIVATE <libs>])
# Static library plumb_<name>, known to everybody as plumbline::<name>. Public headers lie in include/plumb/<name>/ and are
# listed one by one: each is compiled alone by all_verify_interface_header_sets, and only include/ is visible to others.
# Each module is its own export set, so that a user of one component does not need the dependencies of another.
function(plumb_add_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;SOURCES;PUBLIC;PRIVATE")
  set(target plumb_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(plumbline::${name} ALIAS ${target})
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS include FILES ${arg_HEADERS})
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  plumb_strict(${target})
  plumb_precompile(${target} modules ${arg_PUBLIC} ${arg_PRIVATE})
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON VERIFY_INTERFACE_HEADER_SETS ON)
  install(TARGETS ${target} EXPORT plumbline_${name} ARCHIVE FILE_SET HEADERS)
  install(EXPORT plumbline_${name} NAMESPACE plumbline:: DESTINATION ${PLUMB_INSTALL_CMAKEDIR})

  # Its line in the table of plumblineConfig.cmake: "plumbline::cache" needs component cache, "fmt::fmt" package fmt.
  # CMake 3.25 cannot export find_dependency, so this is what keeps the package and the build from drifting apart.
  set(needs ${arg_PUBLIC} ${arg_PRIVATE})
  list(TRANSFORM needs REPLACE "^plumbline::" "")
  list(TRANSFORM needs REPLACE "::.*$" "")
  list(JOIN needs " " needs)
  set_property(GLOBAL APPEND PROPERTY PLUMB_COMPONENTS ${name})
  set_property(GLOBAL APPEND_STRING PROPERTY PLUMB_COMPONENT_NEEDS "set(plumbline_${name}_needs ${needs})\n")
endfunction()

# plumb_add_program(<name> SOURCES <files> LIBRARIES <libs>)
# An installed executable. All programs lie in one folder, because `plumb` looks for its siblings beside itself.
function(plumb_add_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES})
  plumb_program_options(${name})
  plumb_precompile(${name} programs ${arg_LIBRARIES})
  install(TARGETS ${name} RUNTIME OPTIONAL)  # what was not built does not stop the libraries
endfunction()

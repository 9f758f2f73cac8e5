# SPDX-License-Identifier: Apache-2.0
# How tests are registered. Every ctest entry carries a label (its module, or mpi) and a limit: nothing here may hang.
include(Catch)

# plumb_add_tests(<module> SOURCES <test files> [LIBRARIES <libs>] [LABELS <labels>])
# One executable test_<module>; every TEST_CASE in it becomes the ctest entry "<module>: <sentence>".
# `-w NoTests`: a name that matches nothing fails instead of passing unrun.
# A name may hold neither ";" nor an unpaired "[": CMake lists break there, and the module becomes one failing entry.
function(plumb_add_tests module)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES;LABELS")
  plumb_add_test_program(test_${module} SOURCES ${arg_SOURCES} LIBRARIES ${arg_LIBRARIES})
  if(arg_LABELS)
    set(labels "${arg_LABELS}")
  else()
    set(labels "${module}")
  endif()
  catch_discover_tests(test_${module} TEST_PREFIX "${module}: " EXTRA_ARGS -w NoTests
    PROPERTIES LABELS "${labels}" TIMEOUT ${PLUMB_TEST_TIMEOUT})
endfunction()

# plumb_add_test_program(<target> SOURCES <files> [LIBRARIES <libs>]): a Catch2 program that no ctest entry runs by itself.
function(plumb_add_test_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE plumb_test_main ${arg_LIBRARIES})
  plumb_test_options(${target})
endfunction()

# plumb_test_options(<target>): how everything in tests/ is compiled.
# Reading Catch2 and the standard library takes longer than compiling most tests, so plumb_test_main compiles them once and
# all others use that. All need the same options and definitions for it; where they differ, g++ says so (-Winvalid-pch).
# Only under a sanitizer, where no warning is an error: g++ 12 warns of libstdc++'s own code once that is precompiled.
function(plumb_test_options target)
  plumb_strict(${target})
  plumb_unite(${target})
  # What is tested is optimised in full; the tests themselves would take half as long again to compile, or under a
  # sanitizer longer than they run.
  target_compile_options(${target} PRIVATE $<IF:$<BOOL:${PLUMB_SANITIZE}>,-O0,$<$<CONFIG:Release>:-O1>>)
  if(NOT PLUMB_SANITIZE)
    return()
  elseif(target STREQUAL "plumb_test_main")
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/catch.hpp
      <algorithm> <cmath> <functional> <map> <memory> <optional> <random> <set> <span> <string> <variant> <vector>)
  else()
    target_precompile_headers(${target} REUSE_FROM plumb_test_main)
  endif()
endfunction()

# plumb_add_mpi_test(<name> TARGET <executable> RANKS 1 2 4 [ARGS ..] [LABELS ..] [TIMEOUT seconds])
# One ctest entry "<name> (R ranks)" per rank count. MPIEXEC_TIMEOUT ends a hung job and its ranks before ctest would.
function(plumb_add_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TARGET;TIMEOUT" "RANKS;ARGS;LABELS")
  if(NOT PLUMB_HAVE_MPI)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT ${PLUMB_TEST_TIMEOUT})
  endif()
  math(EXPR ctest_timeout "${arg_TIMEOUT} + 10")
  foreach(ranks IN LISTS arg_RANKS)
    if(PLUMB_SANITIZE AND ranks GREATER 4)
      message(STATUS "${name} (${ranks} ranks): left out under a sanitizer, where so many ranks take a minute")
      continue()
    endif()
    set(test "${name} (${ranks} ranks)")
    add_test(NAME "${test}"
      COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} --oversubscribe $<TARGET_FILE:${arg_TARGET}> ${arg_ARGS})
    set_tests_properties("${test}" PROPERTIES LABELS "mpi;${arg_LABELS}" PROCESSORS 2 TIMEOUT ${ctest_timeout}
      ENVIRONMENT "${PLUMB_MPI_TEST_ENVIRONMENT};MPIEXEC_TIMEOUT=${arg_TIMEOUT}")
  endforeach()
endfunction()

# Open MPI on a small machine: more ranks than cores must neither be refused nor spin (a ring hop of 8 ranks on 2 cores
# takes 23 ms without yielding, 8 us with), containers often forbid cross-memory attach, and TMPDIR must be short because
# the session directory holds sockets.
set(PLUMB_MPI_TEST_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
  OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none TMPDIR=/tmp)
if(PLUMB_SANITIZE STREQUAL "address")
  # Open MPI is built without frame pointers; only the slow unwinder finds its name in a leak's stack, for tests/support/lsan.supp.
  list(APPEND PLUMB_MPI_TEST_ENVIRONMENT ASAN_OPTIONS=detect_stack_use_after_return=1:fast_unwind_on_malloc=0)
endif()

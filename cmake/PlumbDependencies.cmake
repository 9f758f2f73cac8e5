# SPDX-License-Identifier: Apache-2.0
# What is found on this machine, and one line about each optional part.

# plumb_optional(<NAME> <what it adds> <package> [find_package arguments])
# PLUMB_WITH_<NAME>: AUTO takes the package if it is there, ON demands it, OFF leaves it out. Sets PLUMB_HAVE_<NAME>.
macro(plumb_optional name purpose package)
  set(PLUMB_HAVE_${name} FALSE)
  if(PLUMB_CORE_ONLY OR NOT PLUMB_WITH_${name})
    message(STATUS "${name}: left out as asked (${purpose})")
  else()
    set(CMAKE_MESSAGE_LOG_LEVEL WARNING)  # some packages talk even when told to be quiet
    if(PLUMB_WITH_${name} STREQUAL "AUTO")
      find_package(${package} QUIET ${ARGN})
    else()
      find_package(${package} REQUIRED ${ARGN})
    endif()
    unset(CMAKE_MESSAGE_LOG_LEVEL)
    if(${package}_FOUND)
      set(PLUMB_HAVE_${name} TRUE)
      message(STATUS "${name}: found ${${package}_VERSION}${${package}_CXX_VERSION} (${purpose})")
    else()
      message(STATUS "${name}: not found, left out (${purpose})")
    endif()
  endif()
endmacro()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

set(MPI_CXX_SKIP_MPICXX TRUE)  # the C interface is all we use
plumb_optional(MPI "ranks as processes" MPI COMPONENTS CXX)
plumb_optional(TORCH "the host that trains a language model" Torch)
plumb_optional(CUDA "devices" CUDAToolkit)
plumb_optional(NCCL "messages between devices" NCCL)

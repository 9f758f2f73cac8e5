# SPDX-License-Identifier: Apache-2.0
# plumbline::kernels_cuda, where there is a CUDA compiler: the operators of cuda_operators.hpp. Not installed.
#
# nvcc is called by hand, one command per storage format: warnings, sanitizers and launchers of the C++ compiler are not
# its own, and no other folder has to know the language CUDA.
if(NOT PLUMB_HAVE_CUDA OR PLUMB_SANITIZE OR NOT CUDAToolkit_NVCC_EXECUTABLE OR NOT TARGET CUDA::cudart_static)
  return()
endif()

# sm_100 is known from CUDA 12.8 on.
set(architectures 80 90)
if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
  list(APPEND architectures 100)
endif()
set(PLUMB_CUDA_ARCHITECTURES "${architectures}" CACHE STRING "Compute capabilities the GPU kernels are compiled for")

set(flags -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -Xcompiler=-fPIC -Xptxas=-warn-spills
  -I${CMAKE_CURRENT_SOURCE_DIR} -I${CMAKE_CURRENT_SOURCE_DIR}/include)
foreach(architecture IN LISTS PLUMB_CUDA_ARCHITECTURES)
  list(APPEND flags -gencode arch=compute_${architecture},code=sm_${architecture})
endforeach()
list(GET PLUMB_CUDA_ARCHITECTURES -1 newest)
list(APPEND flags -gencode arch=compute_${newest},code=compute_${newest})

set(objects)
foreach(storage fp32 bf16 fp16)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels_${storage}.cu)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/kernels_${storage}${CMAKE_CXX_OUTPUT_EXTENSION})
  add_custom_command(OUTPUT ${object}
    COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} ${flags} -MD -MT ${object} -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d VERBATIM
    COMMENT "Compiling GPU kernels for ${storage}")
  list(APPEND objects ${object})
endforeach()
set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)

add_library(plumb_kernels_cuda STATIC cuda/cuda_operators.cpp ${objects})
add_library(plumbline::kernels_cuda ALIAS plumb_kernels_cuda)
target_include_directories(plumb_kernels_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
set_property(TARGET plumb_kernels_cuda PROPERTY PLUMB_CUDA_OBJECTS ${objects})
target_link_libraries(plumb_kernels_cuda PUBLIC plumbline::kernels PRIVATE CUDA::cudart_static)
plumb_strict(plumb_kernels_cuda)

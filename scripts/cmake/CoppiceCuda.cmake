# The CUDA backend: whether it can be built, for which GPUs, and with which compiler settings.
# Sets COPPICE_HAS_CUDA.
set(COPPICE_HAS_CUDA OFF)
if(NOT COPPICE_CUDA)
  message(STATUS "coppice: CUDA backend left out (COPPICE_CUDA is off)")
  return()
endif()
# Leaves it out or, if it was asked for, stops.
macro(coppice_without_cuda why)
  if(COPPICE_CUDA STREQUAL AUTO)
    message(STATUS "coppice: CUDA backend left out: ${why}")
    return()
  endif()
  message(FATAL_ERROR "coppice: COPPICE_CUDA=${COPPICE_CUDA}, but ${why}")
endmacro()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  coppice_without_cuda(
    "no CUDA compiler (nvcc) was found; set CMAKE_CUDA_COMPILER or put nvcc on the PATH")
endif()
# CMake's own ways to name architectures are obeyed, too, unless a parent project set them for its
# own targets.
set(coppice_asked_of_cmake "")
if(PROJECT_IS_TOP_LEVEL)
  if(CMAKE_CUDA_ARCHITECTURES)
    set(coppice_asked_of_cmake "${CMAKE_CUDA_ARCHITECTURES}")
  else()
    set(coppice_asked_of_cmake "$ENV{CUDAARCHS}")
  endif()
endif()
# enable_language() insists on a value; every target below names its own.
set(CMAKE_CUDA_ARCHITECTURES OFF)
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
  coppice_without_cuda("nvcc ${CMAKE_CUDA_COMPILER_VERSION} is older than 12.4")
endif()
# CMake 3.25 does not know nvcc's flag for C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit REQUIRED)
set(COPPICE_HAS_CUDA ON)

# What a release carries. PTX of the newest architecture is for GPUs to come.
set(COPPICE_RELEASE_ARCHITECTURES 80-real 86-real 89-real 90a-real)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
  list(APPEND COPPICE_RELEASE_ARCHITECTURES 100-real 120)
else()
  list(APPEND COPPICE_RELEASE_ARCHITECTURES 90-virtual)
endif()
include(CudaArchitectures)
set(asked "${COPPICE_CUDA_ARCHITECTURES}")
if(NOT asked)
  set(asked "${coppice_asked_of_cmake}")
endif()
if(NOT asked)
  set(asked all)
endif()
string(REGEX REPLACE "[, ]+" ";" asked "${asked}")
coppice_resolve_architectures(coppice_cuda_architectures coppice_architecture_names problem ${asked})
if(problem)
  message(FATAL_ERROR "coppice: COPPICE_CUDA_ARCHITECTURES: ${problem}")
endif()
message(STATUS "coppice: CUDA backend with nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${coppice_architecture_names}")

# Compiler settings of CUDA sources. With COPPICE_WERROR warnings, spilled registers and stack
# frames in local memory are errors.
add_library(coppice_cuda_settings INTERFACE)
# A quick build compiles several sources at once, whose names locals may shadow.
set(shadow -Wshadow$<$<BOOL:${COPPICE_QUICK_BUILD}>:=local>)
target_compile_options(coppice_cuda_settings INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,${shadow} --expt-relaxed-constexpr -lineinfo>)
if(COPPICE_WERROR)
  target_compile_options(coppice_cuda_settings INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
endif()
if(COPPICE_QUICK_BUILD AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13.0)
  # Half of the compiler's time. Such code spills registers as no other does.
  target_compile_options(coppice_cuda_settings INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Ofc=max>)
elseif(COPPICE_WERROR)
  target_compile_options(coppice_cuda_settings INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-warn-spills,-warn-lmem-usage,-Werror>)
endif()

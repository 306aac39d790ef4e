# Everything coppice builds with. scripts/install-packages names the same libraries as system
# packages.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(nlohmann_json REQUIRED)
include(CoppiceLibraries)
if(coppice_missing_libraries)
  message(FATAL_ERROR
    "coppice needs ${coppice_missing_libraries}; scripts/install-packages installs what is missing")
endif()

# Instruction sets that Highway need not compile for. The least that coppice names is sse4; what runs
# under the sanitizers, or is built for this machine alone, is this processor's best one, and what
# every processor has. Better ones have lower bits.
set(unused_targets HWY_SSSE3)
set(best_alone OFF)
if(COPPICE_SANITIZE OR COPPICE_CPU_TARGETS STREQUAL native)
  set(best_alone ON)
endif()
if(best_alone OR COPPICE_CPU_TARGETS STREQUAL here)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -march=native -dM -E -x c++ /dev/null
                  OUTPUT_VARIABLE processor ERROR_QUIET)
  set(worse "")
  if(processor MATCHES "__AVX512BW__")
    set(worse "|HWY_SSE4|HWY_AVX2")
  elseif(processor MATCHES "__AVX2__")
    set(worse "|HWY_SSE4")
    string(APPEND unused_targets "|(HWY_AVX2-1)")
  else()
    string(APPEND unused_targets "|(HWY_SSE4-1)")
  endif()
  if(best_alone)
    string(APPEND unused_targets "${worse}")
  endif()
endif()
target_compile_definitions(coppice::hwy INTERFACE "HWY_DISABLED_TARGETS=${unused_targets}")

find_path(COPPICE_RANDOM123_INCLUDE Random123/philox.h REQUIRED)
mark_as_advanced(COPPICE_RANDOM123_INCLUDE)

if(COPPICE_BUILD_CLI)
  find_package(Boost REQUIRED COMPONENTS program_options)
  # Edits the lines of `coppice chat`; without it they are read as they come.
  find_path(COPPICE_LIBEDIT_INCLUDE histedit.h)
  find_library(COPPICE_LIBEDIT edit)
  mark_as_advanced(COPPICE_LIBEDIT COPPICE_LIBEDIT_INCLUDE)
  if(NOT COPPICE_LIBEDIT_INCLUDE)
    set(COPPICE_LIBEDIT "")
  endif()
endif()
if(COPPICE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

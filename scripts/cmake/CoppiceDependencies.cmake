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
# under the sanitizers is the processor's best one.
set(unused_targets HWY_SSSE3)
if(COPPICE_SANITIZE)
  set(unused_targets HWY_SSSE3|HWY_SSE4)
endif()
target_compile_definitions(coppice::hwy INTERFACE HWY_DISABLED_TARGETS=${unused_targets})

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

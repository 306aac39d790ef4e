# Everything coppice builds with. scripts/install-packages names the same
# libraries as system packages.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(dnnl REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost REQUIRED COMPONENTS program_options)

# Highway, sentencepiece and Random123 ship no CMake package on every supported system.
find_path(COPPICE_HWY_INCLUDE hwy/highway.h REQUIRED)
find_library(COPPICE_HWY_LIBRARY hwy REQUIRED)
find_path(COPPICE_RANDOM123_INCLUDE Random123/philox.h REQUIRED)
find_path(COPPICE_SENTENCEPIECE_INCLUDE sentencepiece_processor.h REQUIRED)
find_library(COPPICE_SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
mark_as_advanced(COPPICE_HWY_INCLUDE COPPICE_HWY_LIBRARY COPPICE_RANDOM123_INCLUDE
                 COPPICE_SENTENCEPIECE_INCLUDE COPPICE_SENTENCEPIECE_LIBRARY)

if(COPPICE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

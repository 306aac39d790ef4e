# Compiler settings that every target of this project shares.
add_library(coppice_settings INTERFACE)
target_compile_options(coppice_settings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wnon-virtual-dtor>)
if(COPPICE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # A twelfth of the compiler's time goes into collecting garbage that fits into memory.
  target_compile_options(coppice_settings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=400000>)
endif()
if(COPPICE_UNITY_BUILD)
  # Said of names in other sources that are compiled along, which locals may shadow, too.
  target_compile_options(coppice_settings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage -Wshadow=local>)
else()
  target_compile_options(coppice_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wshadow>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees overlapping copies in std::string's operator+ (GCC bug 105651).
  target_compile_options(coppice_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(COPPICE_WERROR)
  target_compile_options(coppice_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(COPPICE_QUICK_BUILD)
  # Every test program links the whole library.
  include(CheckLinkerFlag)
  foreach(linker lld gold)
    check_linker_flag(CXX -fuse-ld=${linker} COPPICE_HAS_${linker})
    if(COPPICE_HAS_${linker})
      target_link_options(coppice_settings INTERFACE $<$<LINK_LANGUAGE:CXX>:-fuse-ld=${linker}>)
      break()
    endif()
  endforeach()
endif()
if(COPPICE_SANITIZE)
  target_compile_options(coppice_settings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${COPPICE_SANITIZE} -fno-sanitize-recover=all
      -fno-omit-frame-pointer>)
  # Less optimization and less to instrument: half of the compiler's time. Given up for it: vptr
  # (wrong downcasts); null and object-size, whose accesses stop the address sanitizer as well;
  # and, in cold code and in that of coppice_typed, which read no raw memory, alignment and
  # pointer-overflow.
  set(cold $<BOOL:$<TARGET_PROPERTY:COPPICE_COLD>>)
  set(typed $<OR:${cold},$<BOOL:$<TARGET_PROPERTY:COPPICE_TYPED>>>)
  target_compile_options(coppice_settings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-O$<IF:${cold},0,1> -g1
      -fno-sanitize=null,vptr,object-size$<${typed}:,alignment,pointer-overflow>>
    $<$<BOOL:$<TARGET_PROPERTY:COPPICE_TEST>>:-fno-sanitize=undefined>  # tests/CMakeLists.txt
    # For what others check: kernels/CMakeLists.txt.
    $<$<BOOL:$<TARGET_PROPERTY:COPPICE_UNCHECKED>>:-fno-sanitize=all;-O2>)
  if(COPPICE_QUICK_BUILD)
    # Scopes of temporaries: a quarter of the compiler's time. Lines in reports, which name functions
    # without: a twelfth.
    target_compile_options(coppice_settings INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-address-use-after-scope -g0>)
  endif()
  target_link_options(coppice_settings INTERFACE -fsanitize=${COPPICE_SANITIZE})
endif()

# coppice_together(NAME): with COPPICE_UNITY_BUILD a target's sources are compiled several at once,
# so that what they include is parsed and instantiated once for all.
function(coppice_together name)
  set_target_properties(${name} PROPERTIES
    UNITY_BUILD ${COPPICE_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE 32)
endfunction()

# coppice_together_in(NAME GROUP SOURCES ...): the same, of these sources alone; those that are in no
# group are then compiled one by one.
function(coppice_together_in name group)
  set_target_properties(${name} PROPERTIES
    UNITY_BUILD ${COPPICE_UNITY_BUILD} UNITY_BUILD_MODE GROUP)
  set_property(SOURCE ${ARGN} TARGET_DIRECTORY ${name} PROPERTY UNITY_GROUP ${group})
endfunction()

# coppice_as_in_programs(NAME): objects that only programs link are compiled as their own sources are,
# so that a precompiled header serves both.
function(coppice_as_in_programs name)
  get_target_property(type ${name} TYPE)
  if(NOT type STREQUAL EXECUTABLE)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:${CMAKE_CXX_COMPILE_OPTIONS_PIE}>)
  endif()
endfunction()

# coppice_cold(NAME [IDLE]): little time is spent in a target's own code; what counts is how soon it
# is compiled. IDLE: so little that a quick build does not optimize it at all.
function(coppice_cold name)
  set(level 1)
  if("IDLE" IN_LIST ARGN AND COPPICE_QUICK_BUILD)
    set(level 0)
  endif()
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O${level}>)
  set_target_properties(${name} PROPERTIES COPPICE_COLD ON)  # -O0 under the sanitizers
endfunction()

# coppice_warm(NAME): some time is spent there, and a quick build gives a little of it for a third of
# the compiler's.
function(coppice_warm name)
  if(COPPICE_QUICK_BUILD)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# coppice_idle_program(NAME SOURCES ...): a program that nothing runs in a quick build, which
# therefore reads its sources and makes nothing of them.
function(coppice_idle_program name)
  if(NOT COPPICE_QUICK_BUILD)
    add_executable(${name} ${ARGN})
    return()
  endif()
  add_library(${name} OBJECT ${ARGN})
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsyntax-only>)
  coppice_as_in_programs(${name})
endfunction()

# coppice_sources_together(FILE SOURCES ...): makes a source that includes these. CMake does the same
# with all sources of a target, but not with CUDA's.
function(coppice_sources_together file)
  list(TRANSFORM ARGN REPLACE "(.+)" "#include \"\\1\"\n")
  string(JOIN "" together ${ARGN})
  file(CONFIGURE OUTPUT ${file} CONTENT "${together}")
endfunction()

# coppice_typed(NAME ...): targets that keep to objects of their types and reinterpret no bytes, so
# that under the sanitizers no alignment is checked: a quarter of the compiler's time.
function(coppice_typed)
  set_target_properties(${ARGN} PROPERTIES COPPICE_TYPED ON)
endfunction()

# coppice_room(NAME SOURCES ... LINKS ... PRIVATE_LINKS ...): one folder of the
# house as an object library, so that the installed library is a single archive.
function(coppice_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(${name} OBJECT ${ROOM_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${ROOM_LINKS}
                        PRIVATE coppice_settings ${ROOM_PRIVATE_LINKS})
  coppice_together(${name})
endfunction()

cmake_minimum_required(VERSION 3.25)  # its policies

# What the checks beside this file share. They are given BUILD and SOURCE (folders), SCRATCH (a
# folder that is theirs), CXX, GENERATOR, NM, READELF and LIBDIR (lib, lib64, ...).
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed (${code}): ${ARGV}\n${out}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

# expect(PATTERN): what ran last printed it.
function(expect pattern)
  if(NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "no '${pattern}' in:\n${output}")
  endif()
endfunction()

set(common -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX})
set(stories ${SCRATCH}/prefix/share/coppice/models/stories)

# Builds the examples by find_package, and one again by pkg-config alone, against SCRATCH/prefix,
# and runs them. ARGN: what the programs are run with.
function(build_examples)
  run(${CMAKE_COMMAND} -S ${SOURCE}/tests/install -B ${SCRATCH}/example ${common}
      -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix)
  run(${CMAKE_COMMAND} --build ${SCRATCH}/example)
  set(ENV{PKG_CONFIG_PATH} ${SCRATCH}/prefix/${LIBDIR}/pkgconfig)
  run(sh -c "exec '${CXX}' -std=c++20 '${SOURCE}/tests/install/example.cc' \
-o '${SCRATCH}/example/by_pkg_config' $(pkg-config --cflags --libs coppice)")
  foreach(program example by_pkg_config)
    run(${CMAKE_COMMAND} -E env ${ARGN} ${SCRATCH}/example/${program} ${stories}/target
        ${stories}/draft "Once upon a time")
    expect("tokens per target pass by policy sure-chain")
  endforeach()
  run(${CMAKE_COMMAND} -E env ${ARGN} ${SCRATCH}/example/c_example ${stories}/target
      ${stories}/draft "Once upon a time")
  expect("-- 32 tokens, [1-9][.0-9]* per target pass by dyspec")
  expect("sample 1: \"(sea|land)\"")
  run(${CMAKE_COMMAND} -E env ${ARGN} ${SCRATCH}/example/many_texts ${stories}/target
      ${stories}/draft "Once upon a time")
  expect("request 2 has ended")
  expect("-- [2-5][.0-9]* texts in a pass")
  run(${CMAKE_COMMAND} -E env ${ARGN} ${SCRATCH}/example/best_first ${stories}/target
      "Once upon a time")
  expect("Once upon a time.*-- [0-9]+ branches, -[0-9.]+ per token")
endfunction()

file(REMOVE_RECURSE ${SCRATCH})

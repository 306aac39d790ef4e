# Installs the build at BUILD to a scratch prefix, builds the example against it, and runs it and
# the installed command from there.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed (${code}): ${ARGV}\n${out}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix)
set(common -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${CXX_FLAGS}
    -DCMAKE_EXE_LINKER_FLAGS=${CXX_FLAGS})
run(${CMAKE_COMMAND} -S ${SOURCE}/tests/install -B ${SCRATCH}/example ${common}
    -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix)
run(${CMAKE_COMMAND} --build ${SCRATCH}/example)
set(stories ${SCRATCH}/prefix/share/coppice/models/stories)
run(${SCRATCH}/example/example ${stories}/target ${stories}/draft "Once upon a time")
if(NOT output MATCHES "tokens per target pass by policy sure-chain")
  message(FATAL_ERROR "the example printed:\n${output}")
endif()
# The installed command finds the installed pair.
run(${CMAKE_COMMAND} -E env --unset=COPPICE_MODELS ${SCRATCH}/prefix/bin/coppice generate
    --prompt "Once upon a time" --max-new-tokens 8 --format json)
if(NOT output MATCHES "\"finish_reason\":\"length\"")
  message(FATAL_ERROR "the installed command printed:\n${output}")
endif()
# add_subdirectory: configuring must work and offer the same target.
run(${CMAKE_COMMAND} -S ${SOURCE}/tests/install -B ${SCRATCH}/subdirectory ${common}
    -DCOPPICE_SUBDIRECTORY=${SOURCE})
file(REMOVE_RECURSE ${SCRATCH})

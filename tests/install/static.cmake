# Installs the build to a scratch prefix, builds the example against it, and runs it and the
# installed command from there.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix)
build_examples()
foreach(file ${LIBDIR}/libcoppice.a share/doc/coppice/LICENSE include/coppice/coppice.h
        share/man/man1/coppice.1 share/man/man1/coppice-generate.1
        share/bash-completion/completions/coppice share/zsh/site-functions/_coppice
        share/doc/coppice/README.md share/doc/coppice/src/CHANGELOG.md
        share/doc/coppice/src/cli/README.md share/doc/coppice/examples/many_texts.cc)
  if(NOT EXISTS ${SCRATCH}/prefix/${file})
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()
# Every link of an installed page leads to something installed.
file(GLOB_RECURSE pages ${SCRATCH}/prefix/share/doc/coppice/*.md)
set(links 0)
foreach(page IN LISTS pages)
  file(READ ${page} text)
  string(REGEX REPLACE "[][;]" "|" text "${text}")  # what CMake's lists would read
  string(REGEX MATCHALL "\\|\\([A-Za-z0-9_./-]*[./][A-Za-z0-9_./-]*" targets "${text}")
  get_filename_component(folder ${page} DIRECTORY)
  foreach(target IN LISTS targets)
    string(SUBSTRING "${target}" 2 -1 target)
    math(EXPR links "${links} + 1")
    if(NOT EXISTS ${folder}/${target})
      message(FATAL_ERROR "${page} links to ${target}, which is not installed")
    endif()
  endforeach()
endforeach()
if(links LESS 20)
  message(FATAL_ERROR "only ${links} links in the installed pages")
endif()
# The examples build where they are installed.
run(${CMAKE_COMMAND} -S ${SCRATCH}/prefix/share/doc/coppice/examples -B ${SCRATCH}/installed_example
    ${common} -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix)
# The interface and nothing of what is behind it.
set(include ${SCRATCH}/prefix/include/coppice)
file(GLOB_RECURSE headers RELATIVE ${include} ${include}/*)
set(interface base/api.h base/error_type.h base/rank_path.h base/sampling_params.h base/token_id.h
    chat.h coppice.h coppice_c.h custom_policy.h speculation.h)
if(NOT headers STREQUAL interface)
  message(FATAL_ERROR "installed headers: ${headers}, not ${interface}")
endif()
# The installed command finds the installed pair.
run(${CMAKE_COMMAND} -E env --unset=COPPICE_MODELS ${SCRATCH}/prefix/bin/coppice generate
    --prompt "Once upon a time" --max-new-tokens 8 --format json)
expect("\"finish_reason\":\"length\"")

# Without a library that a static coppice needs, find_package says so and goes on.
file(REMOVE ${SCRATCH}/example/CMakeCache.txt)
set(without_dnnl -S ${SOURCE}/tests/install -B ${SCRATCH}/example ${common}
    -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix -DCOPPICE_dnnl_LIBRARY=OFF)
run(${CMAKE_COMMAND} ${without_dnnl} -DCOPPICE_IS_OPTIONAL=ON)
expect("going on without coppice: coppice needs libdnnl \\(oneapi/dnnl/dnnl.hpp\\)")
execute_process(COMMAND ${CMAKE_COMMAND} ${without_dnnl} -DCOPPICE_IS_OPTIONAL=OFF
                RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(code EQUAL 0)
  message(FATAL_ERROR "coppice was found without oneDNN")
endif()
expect("coppice needs libdnnl")
file(REMOVE_RECURSE ${SCRATCH})

# What a build says of its commit (scripts/cmake/DescribeCommit.cmake), in SCRATCH.
find_program(GIT git)
if(NOT GIT)
  message(STATUS "skipped: there is no git")
  return()
endif()

set(folder ${SCRATCH}/sources)
set(header ${SCRATCH}/commit.h)
file(REMOVE_RECURSE ${SCRATCH})
file(MAKE_DIRECTORY ${folder}/part)
set(ENV{GIT_CEILING_DIRECTORIES} ${SCRATCH})  # no repository around it
foreach(variable GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE)
  unset(ENV{${variable}})
endforeach()

function(git)
  execute_process(COMMAND ${GIT} -c user.name=test -c user.email=test@example.org
                          -c commit.gpgsign=false -c safe.directory=${folder} ${ARGN}
                  WORKING_DIRECTORY ${folder} OUTPUT_VARIABLE out OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY ERROR_QUIET)
  set(said "${out}" PARENT_SCOPE)
endfunction()

function(expect root commit)
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${root} -DHEADER=${header} -P ${SCRIPT}
                  COMMAND_ERROR_IS_FATAL ANY)
  file(READ ${header} text)
  if(NOT text STREQUAL "#define COPPICE_BUILD_COMMIT \"${commit}\"\n")
    message(FATAL_ERROR "expected ${commit}, the header says ${text}")
  endif()
endfunction()

expect(${folder} unknown)
git(init -q)
expect(${folder} unknown)  # without a commit
file(WRITE ${folder}/part/file "1")
git(add .)
git(commit -q -m one)
git(rev-parse --short=10 HEAD)
expect(${folder} ${said})
set(first ${said})

# Where nothing changed the header stays, so that nothing is compiled again.
file(TIMESTAMP ${header} before "%s")
execute_process(COMMAND ${CMAKE_COMMAND} -E sleep 1.1)
expect(${folder} ${said})
file(TIMESTAMP ${header} after "%s")
if(NOT before STREQUAL after)
  message(FATAL_ERROR "the header was written again")
endif()

file(WRITE ${folder}/part/file "2")
expect(${folder} ${first}-dirty)
git(tag v1.0)
git(commit -q -a -m two)
git(rev-parse --short=10 HEAD)
expect(${folder} v1.0-1-g${said})
expect(${folder}/part unknown)  # a copy within another project's repository

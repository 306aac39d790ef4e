# Writes HEADER, which defines COPPICE_BUILD_COMMIT: what git says of the commit that ROOT is at, or
# "unknown". The file keeps its time where nothing changed, so that nothing is compiled again.
set(commit "")
find_program(GIT git)
if(GIT)
  # The folder may belong to somebody else, as in a container.
  set(ask ${GIT} -c safe.directory=${ROOT} -C ${ROOT})
  execute_process(COMMAND ${ask} rev-parse --show-toplevel
                  OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH ${ROOT} root)
  # Sources that were copied into another repository have none of its commits.
  if(top STREQUAL root)
    execute_process(COMMAND ${ask} describe --always --dirty --tags --abbrev=10
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
if(NOT commit MATCHES "^[A-Za-z0-9._/+-]+$")
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define COPPICE_BUILD_COMMIT \"${commit}\"\n")

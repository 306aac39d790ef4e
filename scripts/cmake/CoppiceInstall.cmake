# What cmake --install puts down: library, headers, command with its manual, pages and examples,
# models, CUDA module, and what find_package and pkg-config read.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/coppice)
set(coppice_installed_shared OFF)
set(installed coppice_lib)
if(BUILD_SHARED_LIBS)
  set(coppice_installed_shared ON)
  set(installed coppice_shared)
endif()

install(TARGETS ${installed} EXPORT coppiceTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES src/chat.h src/coppice.h src/coppice_c.h src/custom_policy.h src/speculation.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/coppice)
install(FILES src/base/api.h src/base/error_type.h src/base/rank_path.h
  src/base/sampling_params.h src/base/token_id.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/coppice/base)
set(doc_dir "\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}")
if(IS_ABSOLUTE "${CMAKE_INSTALL_DOCDIR}")
  set(doc_dir "${CMAKE_INSTALL_DOCDIR}")
endif()
install(CODE "set(SOURCE \"${PROJECT_SOURCE_DIR}\")
set(STAGE \"${PROJECT_BINARY_DIR}/installed_pages\")
set(DESTINATION \"${doc_dir}\")
include(\"${PROJECT_SOURCE_DIR}/scripts/cmake/InstallPages.cmake\")")
install(DIRECTORY models/stories DESTINATION ${CMAKE_INSTALL_DATADIR}/coppice/models)
if(TARGET coppice_cli)
  install(TARGETS coppice_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # Manual pages and completion are what the command prints of itself. Who built the command alone
  # has none.
  if(NOT CMAKE_CROSSCOMPILING)
    set(pages ${PROJECT_BINARY_DIR}/pages)
    add_custom_command(OUTPUT ${pages}/coppice ${pages}/_coppice ${pages}/man1/coppice.1
      COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}/man1
      COMMAND coppice_cli completion bash > ${pages}/coppice
      COMMAND coppice_cli completion zsh > ${pages}/_coppice
      COMMAND coppice_cli man --out ${pages}/man1
      DEPENDS coppice_cli VERBATIM)
    add_custom_target(coppice_pages ALL DEPENDS ${pages}/man1/coppice.1)
    install(FILES ${pages}/coppice DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
            OPTIONAL)
    install(FILES ${pages}/_coppice DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions OPTIONAL)
    install(DIRECTORY ${pages}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} OPTIONAL)
  endif()
endif()
if(TARGET coppice_cuda)
  install(TARGETS coppice_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/coppice)
endif()

install(EXPORT coppiceTargets NAMESPACE coppice:: DESTINATION ${package_dir})
set(coppice_module_file ${CMAKE_INSTALL_LIBDIR}/coppice/libcoppice_cuda.so)
configure_package_config_file(scripts/cmake/coppiceConfig.cmake.in
  ${PROJECT_BINARY_DIR}/coppiceConfig.cmake INSTALL_DESTINATION ${package_dir}
  PATH_VARS coppice_module_file)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/coppiceConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/coppiceConfig.cmake
  ${PROJECT_BINARY_DIR}/coppiceConfigVersion.cmake scripts/cmake/CoppiceLibraries.cmake
  DESTINATION ${package_dir})

# Paths in coppice.pc are relative to it, so that any prefix given to cmake --install is right.
set(pc_dir ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_prefix ${pc_dir} ${CMAKE_INSTALL_PREFIX})
set(pc_prefix "\${pcfiledir}/${pc_prefix}")
foreach(kind LIB INCLUDE)
  string(TOLOWER ${kind} lower)
  set(pc_${lower}dir "\${prefix}/${CMAKE_INSTALL_${kind}DIR}")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${kind}DIR}")
    set(pc_${lower}dir "${CMAKE_INSTALL_${kind}DIR}")
  endif()
endforeach()
set(pc_libs "")
if(NOT BUILD_SHARED_LIBS)
  foreach(library dnnl hwy onig sentencepiece utf8proc)
    get_filename_component(folder ${COPPICE_${library}_LIBRARY} DIRECTORY)
    if(folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
      string(APPEND pc_libs " -l${library}")
    else()
      string(APPEND pc_libs " ${COPPICE_${library}_LIBRARY}")
    endif()
  endforeach()
  foreach(flag ${OpenMP_CXX_FLAGS} ${CMAKE_THREAD_LIBS_INIT})
    string(APPEND pc_libs " ${flag}")
  endforeach()
  foreach(library ${CMAKE_DL_LIBS})
    string(APPEND pc_libs " -l${library}")
  endforeach()
endif()
configure_file(scripts/cmake/coppice.pc.in ${PROJECT_BINARY_DIR}/coppice.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/coppice.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

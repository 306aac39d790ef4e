# Imported targets for libraries that ship no usable CMake package on every supported system.
# Used by coppice's own build and, installed beside it, by find_package(coppice).
# coppice_missing_libraries says what was not found; empty if nothing is missing.
set(coppice_missing_libraries "")
function(coppice_find_library name header library)
  if(TARGET coppice::${name})
    return()
  endif()
  find_path(COPPICE_${name}_INCLUDE ${header})
  find_library(COPPICE_${name}_LIBRARY ${library})
  mark_as_advanced(COPPICE_${name}_INCLUDE COPPICE_${name}_LIBRARY)
  if(NOT COPPICE_${name}_INCLUDE OR NOT COPPICE_${name}_LIBRARY)
    set(coppice_missing_libraries ${coppice_missing_libraries} "lib${library} (${header})" PARENT_SCOPE)
    return()
  endif()
  add_library(coppice::${name} UNKNOWN IMPORTED)
  set_target_properties(coppice::${name} PROPERTIES
    IMPORTED_LOCATION ${COPPICE_${name}_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${COPPICE_${name}_INCLUDE})
endfunction()

coppice_find_library(dnnl oneapi/dnnl/dnnl.hpp dnnl)
coppice_find_library(hwy hwy/highway.h hwy)
coppice_find_library(onig oniguruma.h onig)
coppice_find_library(sentencepiece sentencepiece_processor.h sentencepiece)
coppice_find_library(utf8proc utf8proc.h utf8proc)
list(JOIN coppice_missing_libraries ", " coppice_missing_libraries)

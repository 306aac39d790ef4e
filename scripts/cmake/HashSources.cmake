# Writes HEADER, which defines COPPICE_BUILD_HASH: a hash of the files that LIST names, one a line,
# and of their places under ROOT.
file(STRINGS ${LIST} files)
set(all "")
foreach(file IN LISTS files)
  file(SHA256 ${file} hash)
  file(RELATIVE_PATH name ${ROOT} ${file})
  string(APPEND all "${name} ${hash}\n")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 16 hash)
file(WRITE ${HEADER} "#define COPPICE_BUILD_HASH \"${hash}\"\n")

# What a build with BUILD_SHARED_LIBS=ON installs: libcoppice.so serves find_package and pkg-config
# without the libraries behind it, and exports the public interface alone. The library itself is
# taken from the build at BUILD, which makes it of the same objects.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${SCRATCH}/build ${common} -DCMAKE_BUILD_TYPE=Release
    -DBUILD_SHARED_LIBS=ON -DCOPPICE_CUDA=OFF -DCOPPICE_BUILD_CLI=OFF -DCOPPICE_BUILD_TESTS=OFF
    -DCOPPICE_BUILD_BENCH=OFF)
file(GLOB libraries ${BUILD}/src/libcoppice.so*)
file(COPY ${libraries} DESTINATION ${SCRATCH}/build/src)
run(${CMAKE_COMMAND} --install ${SCRATCH}/build --prefix ${SCRATCH}/prefix)
set(library ${SCRATCH}/prefix/${LIBDIR}/libcoppice.so)
if(EXISTS ${SCRATCH}/prefix/${LIBDIR}/libcoppice.a)
  message(FATAL_ERROR "the static library was installed, too")
endif()

file(READ ${SCRATCH}/prefix/${LIBDIR}/pkgconfig/coppice.pc pc)
if(pc MATCHES "dnnl")
  message(FATAL_ERROR "coppice.pc names what the shared library brings itself:\n${pc}")
endif()
build_examples(LD_LIBRARY_PATH=${SCRATCH}/prefix/${LIBDIR})
foreach(program example by_pkg_config)
  run(${READELF} -d ${SCRATCH}/example/${program})
  expect("NEEDED[^\n]*libcoppice\\.so\\.[0-9]+\\.[0-9]+\\]")
  if(output MATCHES "libdnnl|libhwy|libonig|libsentencepiece|libutf8proc")
    message(FATAL_ERROR "${program} links with libraries of its library:\n${output}")
  endif()
endforeach()
run(${READELF} -d ${library})
expect("SONAME[^\n]*libcoppice\\.so\\.[0-9]+\\.[0-9]+\\]")

# Exported are the public functions, and what exceptions and users' policies need; each name of the
# list is there, and nothing else.
set(functions
  Error::Error version name_of read_static_tree read_sequoia_tree
  Constraint::json Constraint::json_schema Constraint::regex Constraint::choice Constraint::grammar
  GenerateOptions::validate
  Engine::Engine Engine::~Engine Engine::operator= Engine::load Engine::generate
  Engine::new_sequence Engine::judge_tree Engine::tokenize Engine::detokenize
  Engine::has_tokenizer Engine::has_draft Engine::context_length Engine::vocab_size
  Engine::load_seconds Engine::warning Engine::submit Engine::statistics
  Submission::Submission Submission::~Submission Submission::operator= Submission::cancel
  Submission::done Submission::wait Chat::of Chat::from_source Chat::Chat Chat::tokens Chat::text
  Chat::takes Chat::source
  Sequence::Sequence Sequence::~Sequence Sequence::operator= Sequence::generate Sequence::tokens Sequence::rewind
  Sequence::fork Engine::prefix Engine::cache Engine::drop_cache Prefix::Prefix Prefix::~Prefix
  Prefix::operator= Prefix::begin Prefix::tokens)
# The functions of coppice_c.h.
file(READ ${SOURCE}/src/coppice_c.h header)
string(REGEX MATCHALL "\nCOPPICE_C_API [^(]*\\(" declared "${header}")
foreach(declaration IN LISTS declared)
  string(REGEX MATCH "coppice_[a-z_]+\\($" name "${declaration}")
  string(REGEX REPLACE "\\($" "@@COPPICE_C_1" name "${name}")
  list(APPEND functions ${name})
endforeach()
run(${NM} -D -C --defined-only ${library})
string(REGEX MATCHALL "[^\n]+" lines "${output}")
set(seen "")
foreach(line IN LISTS lines)
  string(REGEX REPLACE "^[0-9a-f]+ [A-Za-z] " "" name "${line}")
  if(name MATCHES "^COPPICE_(C_1|CXX)$")  # the versions themselves
    continue()
  endif()
  if(name MATCHES "^(typeinfo|typeinfo name|vtable) for coppice::(Error|GrowingTree|CustomPolicy)@@")
    continue()
  endif()
  string(REGEX REPLACE "(\\[abi:[a-z0-9]+\\])?\\(.*$" "" name "${name}")
  string(REGEX REPLACE "^coppice::" "" name "${name}")
  list(FIND functions "${name}" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "not part of the public interface, but exported: ${line}")
  endif()
  list(APPEND seen ${name})
endforeach()
foreach(name IN LISTS functions)
  if(NOT name IN_LIST seen)
    message(FATAL_ERROR "${name} is not exported")
  endif()
endforeach()
file(REMOVE_RECURSE ${SCRATCH})

// The CUDA backend as a module: libcoppice_cuda.so is opened when a GPU answers, so that programs
// built with it start without it and without cuBLAS. It is never closed: the CUDA runtime inside
// it could not be started again.
//
// Looked for, in this order:
//   1. what the environment variable COPPICE_CUDA_MODULE names, a file or its folder, and nothing
//      else if it is set;
//   2. beside the program or the shared library that holds coppice, in the folder coppice/ beside
//      it, and in the library folder's coppice/ relative to an installed program;
//   3. the library folder's coppice/ that this build was configured for;
//   4. wherever the dynamic linker looks (LD_LIBRARY_PATH, the program's RPATH, ...).
//
// Library and module speak C++ with each other, exceptions included, so both must come from one
// build: a hash of the sources of both, checked before anything else is touched.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda_code.h"
#include "kernels/device.h"

namespace coppice {

/// What the module offers. The first member stays the first, whatever else changes.
struct CudaModule {
  const char* build;  ///< cuda_module_build() of the build that made it
  std::unique_ptr<Device> (*make_device)(const CudaOptions& options);
  bool (*has_device)(std::string* why_not, bool* present);
  const char* architectures;  ///< what its kernels were compiled for, as card_code() takes them
  CardCode (*card_code)();    ///< only where has_device() says yes
  int (*device_count)();      ///< likewise
};

/// The module's one exported name: extern "C" const CudaModule* coppice_cuda_module(). It does not
/// throw.
inline constexpr const char* cuda_module_entry = "coppice_cuda_module";
inline constexpr const char* cuda_module_name = "libcoppice_cuda.so";

/// This build: its release, a hash of its sources, and what decides how C++ is laid out.
const char* cuda_module_build();

/// Files that may be the module, in order; the linker's own search comes after them.
std::vector<std::filesystem::path> cuda_module_places();

/// Opens a module file (a name without a slash: the linker's search). Throws Error(failure) that
/// names the file and the reason: not found, not to be loaded (for one, cuBLAS is missing), no
/// module, another build's.
const CudaModule& open_cuda_module(const std::filesystem::path& file);

}  // namespace coppice

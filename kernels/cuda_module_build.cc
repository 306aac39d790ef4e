#include "kernels/cuda_build_hash.h"
#include "kernels/cuda_module.h"

#define COPPICE_TEXT_OF(x) #x
#define COPPICE_TEXT(x) COPPICE_TEXT_OF(x)

namespace coppice {

const char* cuda_module_build() {
  return COPPICE_VERSION "-" COPPICE_BUILD_HASH "-abi" COPPICE_TEXT(__GXX_ABI_VERSION)
#ifdef _GLIBCXX_USE_CXX11_ABI
      "." COPPICE_TEXT(_GLIBCXX_USE_CXX11_ABI)
#endif
#ifdef _GLIBCXX_DEBUG
          ".debug"
#endif
      ;
}

}  // namespace coppice

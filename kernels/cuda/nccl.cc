#include "kernels/cuda/nccl.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"

namespace coppice::cuda::nccl {
namespace {

constexpr const char* file = "libnccl.so.2";

Library opened() {
  // Sums by multicast through the switch take memory of the whole NVLink domain, which a process
  // may not have for itself. Who wants them sets the variable.
  (void)setenv("NCCL_NVLS_ENABLE", "0", 0);
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* const said = dlerror();
    throw_failure(cat("tensor parallel: NCCL cannot be loaded (", said == nullptr ? file : said,
                      "); install NCCL 2, put its folder on LD_LIBRARY_PATH, or use one GPU"));
  }
  const auto find = [&]<typename Function>(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function != nullptr) return;
    throw_failure(cat("tensor parallel: ", file, " has no ", name, "; install NCCL 2.10 or later"));
  };
  Library library{};
  find("ncclGetErrorString", library.error_string);
  find("ncclGetLastError", library.last_error);
  find("ncclCommInitAll", library.comm_init_all);
  find("ncclGetUniqueId", library.get_unique_id);
  find("ncclCommInitRank", library.comm_init_rank);
  find("ncclCommDestroy", library.comm_destroy);
  find("ncclCommAbort", library.comm_abort);
  find("ncclAllReduce", library.all_reduce);
  find("ncclSend", library.send);
  find("ncclRecv", library.receive);
  find("ncclGroupStart", library.group_start);
  find("ncclGroupEnd", library.group_end);
  return library;
}

}  // namespace

const Library& library() {
  static const Library the = opened();
  return the;
}

void check(Result result, const char* operation) {
  if (result == Result::success) return;
  const Library& nccl = library();
  const char* const more = nccl.last_error(nullptr);
  throw_failure(cat("NCCL: ", operation, " failed: ", nccl.error_string(result),
                    more == nullptr || *more == '\0' ? "" : cat(" (", more, ")")));
}

}  // namespace coppice::cuda::nccl

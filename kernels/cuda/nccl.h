// What coppice uses of NCCL, which is looked for when several GPUs are to share a model: nothing
// else needs it, neither to build nor to run. Declared here as NCCL 2 has it (nccl.h), so that no
// header is needed either.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace coppice::cuda::nccl {

struct Comm;  ///< ncclComm
enum class Result : int { success = 0 };
enum class DataType : int { float32 = 7 };
enum class Reduction : int { sum = 0 };

/// Names a group of processes (ncclUniqueId).
struct UniqueId {
  char bytes[128];
};

struct Library {
  const char* (*error_string)(Result);
  const char* (*last_error)(Comm*);
  Result (*comm_init_all)(Comm** comms, int count, const int* devices);
  Result (*get_unique_id)(UniqueId* id);
  Result (*comm_init_rank)(Comm** comm, int ranks, UniqueId id, int rank);
  Result (*comm_destroy)(Comm*);
  Result (*comm_abort)(Comm*);
  Result (*all_reduce)(const void* from, void* to, std::size_t count, DataType, Reduction, Comm*,
                       cudaStream_t);
  Result (*send)(const void* from, std::size_t count, DataType, int peer, Comm*, cudaStream_t);
  Result (*receive)(void* to, std::size_t count, DataType, int peer, Comm*, cudaStream_t);
  Result (*group_start)();
  Result (*group_end)();
};

/// Opens libnccl.so.2 where the dynamic linker finds it, once in a process. Throws Error(failure)
/// with the remedy where it is not there or lacks something.
const Library& library();

/// Throws Error(failure) that names the operation, unless it succeeded.
void check(Result result, const char* operation);

}  // namespace coppice::cuda::nccl

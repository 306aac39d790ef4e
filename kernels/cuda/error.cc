#include "kernels/cuda/error.h"

#include "base/error.h"

namespace coppice::cuda {

void throw_cuda(cudaError_t status, const char* operation) {
  (void)cudaGetLastError();  // or the next launch's check would find it again
  throw_failure(cat("CUDA: ", operation, " failed: ", cudaGetErrorString(status), " (",
                    cudaGetErrorName(status), ")"));
}

}  // namespace coppice::cuda

#include <cstring>

#include "base/error.h"
#include "kernels/cuda/completion.cuh"
#include "kernels/cuda/completion.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/transfers.h"

namespace coppice::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr int unrolled = 4;
static_assert(sizeof(Manifest) % sizeof(uint4) == 0 && sizeof(Manifest) / sizeof(uint4) <= threads);

/// A block per entry. The host's memory is read past all caches: it changes between launches.
__global__ void __launch_bounds__(threads)
    transfer_kernel(const Manifest* manifest, CompletionView completion) {
  __shared__ __align__(16) Manifest now;
  constexpr unsigned words = sizeof(Manifest) / sizeof(uint4);
  if (threadIdx.x < words) {
    reinterpret_cast<uint4*>(&now)[threadIdx.x] =
        __ldcv(reinterpret_cast<const uint4*>(manifest) + threadIdx.x);
  }
  __syncthreads();
  if (static_cast<std::int32_t>(blockIdx.x) < now.count) {
    const Manifest::Entry& entry = now.entries[blockIdx.x];
    const auto* from = static_cast<const uint4*>(entry.host);
    auto* to = static_cast<uint4*>(entry.device);
    for (std::uint64_t first = threadIdx.x; first < entry.vectors; first += unrolled * threads) {
      uint4 values[unrolled];
#pragma unroll
      for (int i = 0; i < unrolled; ++i) {
        if (first + i * threads < entry.vectors) values[i] = __ldcv(from + first + i * threads);
      }
#pragma unroll
      for (int i = 0; i < unrolled; ++i) {
        if (first + i * threads < entry.vectors) to[first + i * threads] = values[i];
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0 && is_last(completion.finished, gridDim.x)) {
    tell_host(completion.mark, now.number);
  }
}

}  // namespace

Transfers::Transfers(const Allocate& allocate, cudaStream_t stream)
    : stream_(stream),
      manifest_(1, transfers_purpose),
      arrived_(1, transfers_purpose),
      finished_(allocate(transfers_device_bytes, transfers_purpose)) {}

void Transfers::wait() {
  // A departure whose kernel was never queued, since something failed, is found by an idle stream.
  (void)reached(arrived_.data(), departed_, stream_, "transfers");
}

void Transfers::add(void* device, const void* host, std::size_t bytes) {
  const Manifest::Entry entry{device, host, (bytes + sizeof(uint4) - 1) / sizeof(uint4), 0};
  for (std::int32_t i = 0; i < next_.count; ++i) {
    if (next_.entries[i].device != device) continue;
    next_.entries[i] = entry;
    return;
  }
  if (next_.count == Manifest::most) {
    throw_failure(cat("CUDA: more than ", Manifest::most, " inputs are to be sent together"));
  }
  next_.entries[next_.count++] = entry;
}

void Transfers::depart() {
  wait();
  next_.number = departed_ + 1;
  *manifest_.data() = next_;
  next_ = Manifest{};
  ++departed_;
}

void Transfers::queue() const {
  transfer_kernel<<<Manifest::most, threads, 0, stream_>>>(
      manifest_.data(), CompletionView{finished_.as<std::uint32_t>(), arrived_.data()});
  check_launch("transfers");
}

}  // namespace coppice::cuda

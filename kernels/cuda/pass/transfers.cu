#include <cstring>
#include <utility>

#include "base/error.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/pass/completion.h"
#include "kernels/cuda/pass/transfers.h"

namespace coppice::cuda {
namespace {

constexpr unsigned transfer_threads = 256;
constexpr std::uint32_t vectors_at_once = Envelope::blocks * transfer_threads;
constexpr unsigned head_vectors = sizeof(Envelope::Head) / sizeof(uint4);
static_assert(sizeof(Envelope::Head) % sizeof(uint4) == 0 && head_vectors <= transfer_threads);
static_assert(sizeof(uint4) == Envelope::vector_bytes);

/// The host's memory is read past all caches: it changes between launches.
__global__ void __launch_bounds__(transfer_threads) transfer_kernel(Envelope* envelope) {
  __shared__ __align__(16) Envelope::Head head;
  const auto* contents = reinterpret_cast<const uint4*>(envelope->contents);
  std::uint32_t at = blockIdx.x * transfer_threads + threadIdx.x;
  // Asked for before it is known whether it is wanted.
  uint4 vector = __ldcv(contents + at);
  if (threadIdx.x < head_vectors) {
    reinterpret_cast<uint4*>(&head)[threadIdx.x] =
        __ldcv(reinterpret_cast<const uint4*>(&envelope->head) + threadIdx.x);
  }
  __syncthreads();
  while (at < head.vectors) {
    std::uint64_t begin = 0;
    for (std::uint32_t i = 0; i < head.entries; ++i) {
      if (at < head.entry[i].end) {
        static_cast<uint4*>(head.entry[i].device)[at - begin] = vector;
        break;
      }
      begin = head.entry[i].end;
    }
    at += vectors_at_once;
    if (at < head.vectors) vector = __ldcv(contents + at);
  }
  // Kernels that follow may read inputs before they wait: they begin once these have come.
  __threadfence();
  __syncthreads();
  let_next_kernel_begin();
  // All reads of the block have ended, since what they read was used.
  if (threadIdx.x == 0) {
    static_cast<volatile std::uint32_t*>(envelope->read)[blockIdx.x] = head.number;
  }
}

}  // namespace

Transfers::Transfers(cudaStream_t stream) : stream_(stream), envelope_(1, transfers_purpose) {}

void Transfers::wait() {
  if (std::exchange(copying_, false)) copied_.wait();
}

void Transfers::wait_for_readers() {
  // A departure whose kernel was never queued, since something failed, is found by an idle stream.
  for (std::uint32_t& read : envelope_.data()->read) {
    if (!reached(&read, departed_, stream_, "transfers")) return;
  }
}

void Transfers::add(void* device, const void* host, std::size_t bytes) {
  const Added now{
      device, host,
      static_cast<std::uint32_t>((bytes + Envelope::vector_bytes - 1) / Envelope::vector_bytes)};
  for (Added& former : added_) {
    if (former.device != device) continue;
    former = now;
    return;
  }
  added_.push_back(now);
}

void Transfers::forget(const DeviceBuffer& memory) {
  const auto* begin = static_cast<const std::byte*>(memory.data());
  std::erase_if(added_, [&](const Added& added) {
    const auto* at = static_cast<const std::byte*>(added.device);
    return at >= begin && at < begin + memory.bytes();
  });
}

void Transfers::depart() {
  wait_for_readers();
  Envelope& envelope = *envelope_.data();
  Envelope::Head head;
  for (const Added& added : added_) {
    if (head.entries == Envelope::most_entries ||
        added.vectors > Envelope::capacity - head.vectors) {
      check(cudaMemcpyAsync(added.device, added.host,
                            std::size_t{added.vectors} * Envelope::vector_bytes,
                            cudaMemcpyHostToDevice, stream_),
            "copying inputs");
      copied_.record(stream_);
      copying_ = true;
      continue;
    }
    std::memcpy(envelope.contents[head.vectors], added.host,
                std::size_t{added.vectors} * Envelope::vector_bytes);
    head.vectors += added.vectors;
    head.entry[head.entries++] = {added.device, head.vectors};
  }
  added_.clear();
  head.number = ++departed_;
  envelope.head = head;
}

void Transfers::queue() const {
  transfer_kernel<<<Envelope::blocks, transfer_threads, 0, stream_>>>(envelope_.data());
  check_launch("transfers");
}

}  // namespace coppice::cuda

// The library's tree attention on a set of inputs, driven as a pass drives it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "input_sets.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/pass/cuda_pass.h"
#include "range_costs.h"

namespace coppice::bench {

/// What the host spends on a pass before its first kernel, medians in microseconds.
struct HostPlanning {
  double order_us = 0.0;  ///< depth-first order of the tree and who sees its tokens
  double plan_us = 0.0;   ///< make_flatten_plan(), where the kernel takes chunks
  double begin_us = 0.0;  ///< CudaPass::begin(): that plan, the inputs' copy queued
};

class LibraryAttention {
 public:
  /// `blocks`: from prepare_attention(), for the cell's heads. The workload's tail needs intervals.
  LibraryAttention(const InputSets& inputs, const ResidentBlocks& blocks, cudaStream_t stream);

  /// Cuts the tokens into chunks of this length (a multiple of chunk_step) instead of those that
  /// make_flatten_plan() chooses. Kernels that take ranges (ResidentBlocks) ignore it.
  void force_chunks(std::int32_t chunk_tokens);
  std::int32_t chosen_chunk() const { return scalars_.chunk_tokens; }
  std::int32_t chunks() const { return scalars_.chunks; }

  /// Queues one layer's attention; the output goes to InputSets::out().
  void queue(std::int32_t set);

  /// Whether the kernel is the one that takes ranges.
  bool takes_ranges() const { return launch().takes_ranges(); }
  /// As queue(), with the marks of traced_attention().
  void queue_traced(std::int32_t set, std::uint64_t* nanoseconds);

  /// Says, for a kernel that takes ranges, how the work is divided.
  RangeDivision division() const;
  /// The tiles of the ranges.
  RangeTiles tiles() const { return launch().tiles; }

  HostPlanning host_planning(std::int32_t samples);
  /// CudaPass::begin() alone, where the pass is not of one tree.
  double begin_us(std::int32_t samples);

 private:
  AttentionLaunch launch() const { return pass_->window(inputs_.rule().window).launch; }
  void begin();

  const InputSets& inputs_;
  ResidentBlocks blocks_;
  cudaStream_t stream_;
  std::vector<std::int32_t> zeros_;
  std::vector<KvSegment> segments_;
  PassInputs pass_inputs_;
  std::unique_ptr<cuda::Transfers> transfers_;
  Preparations preparations_;
  std::unique_ptr<cuda::CudaPass> pass_;
  cuda::PassScalars scalars_;
  cuda::PassView view_;
  cuda::AttentionScratch scratch_;
  DeviceArray<cuda::PassScalars> forced_scalars_;
  DeviceArray<float> forced_out_, forced_lse_;
};

}  // namespace coppice::bench

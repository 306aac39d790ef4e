// Matrix products, by cublasLt, or, up to 96 rows on GPUs of compute capability 9.0, by kernels
// that stream the weights (streamed_linear.h). Quantised weights stay packed there
// (packed_linear.h).
//
//   out[r, j] (+)= sum_i x[r, i] W[j, i] + bias[j]
//
//   x     [rows, in] bf16
//   W     [out, in] bf16 row-major, rounded once when packed, or blocks
//   bias  [out] f32 or none
//   out   [rows, out] f32; its former value is added when `accumulate`
// Products and sums in f32. x and out do not overlap, are aligned to 16 bytes, and have room for
// padded_row_count(rows) rows, which is what products run at. `in` and `out` may be any.
//
// Results depend on (in, out, padded rows, accumulate, has bias) alone: no code adds in an order
// that varies, and among codes of equal bits only does a clock decide (library_products.h). The
// same build, card and library give the same bits in every run, and a row's result does not depend
// on how many of the padded rows are in use.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/linear/product_timing.h"
#include "kernels/cuda/linear/weight_upload.h"
#include "kernels/device.h"

namespace coppice::cuda {

class ProductProposals;
struct RopeTensors;

/// The row counts that passes and products run at, a graph each: powers of two to 16, steps of 16
/// to 192 and 72 (a tree of 64 with its root), less even ones to 512 (264 for one of 256), of 128
/// to 1280, of 256 from there.
std::int32_t padded_row_count(std::int32_t rows);
/// The largest of these counts below padded_row_count(rows); 0 if there is none.
std::int32_t smaller_row_count(std::int32_t rows);

/// Products of one device. Not for several threads, nor on several streams, at a time: they share
/// one workspace.
class LinearEngine {
 public:
  /// `upload` must outlive pack() calls, not the engine; `timing` and `proposals`, if given,
  /// outlive it.
  /// With `streams` false all products are the library's (to compare).
  LinearEngine(WeightUpload& upload, Allocate allocate, bool streams = true,
               ProductTiming* timing = nullptr, ProductProposals* proposals = nullptr);
  ~LinearEngine();

  /// See Device::pack_linear. Waits for the upload's stream. Blocks stay packed where products with
  /// them are streamed, all parts have a layout and whole sides of outputs; else they become bf16.
  /// The table() of weights in bf16 is theirs, and has_non_finite() looks at bf16 values: f32
  /// beyond bf16's range counts as infinite.
  std::unique_ptr<LinearWeights> pack(std::span<const LinearPart> parts, std::int64_t in_features,
                                      std::span<const float> bias, std::int32_t max_rows);

  /// See Device::linear; `rows` may also be padded_row_count(max_rows). May be captured; a
  /// call that is not may wait for the stream, to time codes (ProductTiming).
  void run(const LinearWeights& weights, const void* x, std::int32_t rows, float* out,
           bool accumulate, cudaStream_t stream);

  /// In one kernel with what follows them, where the weights are streamed at that many rows; else
  /// false, and nothing is done. `qkv` as rope_write_kv() (elementwise.h) takes it; `out` as
  /// glu() writes it, the weights' outputs being gate and up.
  bool run_qkv(const LinearWeights& weights, const void* x, std::int32_t rows,
               const RopeTensors& qkv, cudaStream_t stream);
  bool run_gated(const LinearWeights& weights, Activation activation, const void* x,
                 std::int32_t rows, void* out, cudaStream_t stream);

  /// Whether products of few rows are streamed on this device.
  bool streams() const;
  /// Names the code that run() uses (tests, diagnostics).
  std::string implementation(const LinearWeights& weights, std::int32_t rows, bool accumulate);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice::cuda

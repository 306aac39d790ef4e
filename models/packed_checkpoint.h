// Checkpoints whose matrices are packed: AWQ, GPTQ and compressed-tensors.
#pragma once

#include <memory>

#include "models/config.h"
#include "models/config_fields.h"
#include "models/weight_source.h"

namespace coppice {

/// Reads the field quantization_config into config.packing. What coppice does not read is added to
/// config.unsupported, by name.
void read_packing(const Fields& fields, ModelConfig& config);

/// Presents the matrices of `source` as X.weight:
///
///   awq     X.qweight [in, out / 8], X.qzeros [in / g, out / 8], X.scales [in / g, out]: INT4. The
///           outputs of a word stand in the order 0 2 4 6 1 3 5 7 (AutoAWQ's GEMM)
///   gptq    X.qweight [in / 8, out], X.qzeros, X.scales likewise, X.g_idx [in]: INT4; F32 where
///           g_idx gives an input another group than its place does. Of version 1 zeros are less
///           one
///   int4    X.weight_packed [out, in / 8] of numbers plus 8, X.weight_scale [out, in / g], and
///           X.weight_zero_point [out / 8, in / g] where there are zeros: INT4
///   fp8     X.weight of F8_E4M3 and X.weight_scale, one number, [out, 1], or one of each 128 x 128
///           (X.weight_scale_inv): FP8; F32 where rows are no multiple of 64
///
/// and other tensors as they are. Scales that are stored in BF16 are rounded to F16 where it does
/// not hold them. Throws Error(failure) naming file and tensor for shapes that do not fit.
std::unique_ptr<WeightSource> unpacked(std::unique_ptr<WeightSource> source,
                                       const WeightPacking& packing);

}  // namespace coppice

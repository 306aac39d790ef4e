// How far two correct passes over the same text may differ.
#pragma once

#include <span>

#include "kernels/device.h"
#include "models/config.h"

namespace coppice::study {

/// Bound on the difference that rounding makes between two passes to a difference of two logits.
/// A model of L layers rounds its activations 4 L + 1 times; each time is a relative error of the
/// type's unit roundoff u (bf16: 2^-9; f32: 2^-24 times the root of the longest sum), which adds
/// up as a random walk on logits of which the best lies `spread` above their mean:
/// u * sqrt(4 L + 1) * spread, and twice that for two passes. Of keys and values that are rounded
/// once more to a coarser unit k, a share u / k of the two passes' differs, by k: sqrt(u k) beside
/// u.
double logit_rounding(const ModelConfig& config, DType compute, DType kv, double spread);

/// How far the best logit, or log-probability, lies above the mean of the finite ones.
double spread_of(std::span<const double> logits);

}  // namespace coppice::study

// The gated activation of one element.
#pragma once

#include "kernels/device.h"

namespace coppice::cuda {

/// activation(gate) up, see kernels/cpu/glu.h. For a large negative t exp() is infinite and the
/// quotient -0, its limit.
__device__ inline float gated(Activation activation, float gate, float up) {
  float t = gate;
  if (activation == Activation::gelu_tanh) {
    t = gate * fmaf(gate * gate, 0.0713548163f, 1.59576912f);
  }
  return gate / (1.0f + expf(-t)) * up;
}

}  // namespace coppice::cuda

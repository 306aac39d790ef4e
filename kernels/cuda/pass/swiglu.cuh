// The gated activation of one element.
#pragma once

namespace coppice::cuda {

/// silu(gate) up. For a large negative gate exp() is infinite and the quotient -0, its limit.
__device__ inline float gated(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

}  // namespace coppice::cuda

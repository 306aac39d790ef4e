// Soft cap of logits (Gemma 2):
//
//   logits[r, i] = cap * tanh(logits[r, i] / cap), in place
//
//   logits  [rows, width] f32
//   cap     positive; results are within [-cap, cap], with an error of about 2^-22 cap
#pragma once

#include "kernels/device.h"

namespace coppice::cpu {

class Workers;

void soft_cap(float* logits, std::int32_t rows, std::int64_t width, float cap, Workers& workers);

}  // namespace coppice::cpu

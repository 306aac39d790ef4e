// Rows of an embedding table, times a scale.
//
//   table   [vocab, hidden] of any format
//   tokens  [rows], each in [0, vocab) (the caller's to check: the table does not know vocab)
//   out     [rows, hidden] f32: values widened, which is exact, and multiplied by `scale` (Gemma's
//           is sqrt(hidden); others' is 1, which keeps the bits)
#pragma once

#include <span>

#include "kernels/device.h"

namespace coppice::cpu {

class Workers;

void embed(const void* table, WeightFormat format, std::int64_t hidden,
           std::span<const TokenId> tokens, float scale, float* out, Workers& workers);

}  // namespace coppice::cpu

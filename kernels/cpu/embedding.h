// Rows of an embedding table.
//
//   table   [vocab, hidden] f32, f16 or bf16
//   tokens  [rows], each in [0, vocab) (the caller's to check: the table does not know vocab)
//   out     [rows, hidden] f32, exact: every f16 and bf16 value is an f32 value
#pragma once

#include <span>

#include "kernels/device.h"

namespace coppice::cpu {

class Workers;

void embed(const void* table, DType dtype, std::int64_t hidden, std::span<const TokenId> tokens,
           float* out, Workers& workers);

}  // namespace coppice::cpu

// Rows of a matrix by index (the rows whose logits are wanted).
//
//   x     [*, width] f32
//   rows  [n] row indices of x, repeats allowed
//   out   [n, width] f32, must not overlap x
#pragma once

#include <cstdint>
#include <span>

namespace coppice::cpu {

class Workers;

void gather_rows(const float* x, std::int64_t width, std::span<const std::int32_t> rows, float* out,
                 Workers& workers);

}  // namespace coppice::cpu

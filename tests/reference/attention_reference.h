// Attention in double precision, straight from its definition: the oracle of
// kernels/cpu/attention.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"

namespace coppice::testing {

struct AttentionReference {
  std::vector<double> out;  ///< [queries, heads, head_dim]
  /// [queries, heads, head_dim]: how far a correct f32 computation may be away from `out`.
  std::vector<double> tolerance;
};

/// For every query q and head h: softmax over the tokens t with q_begin <= q < q_end of
/// scale q k_t, times v_t. Arguments as in Device::tree_attention.
///
/// The tolerance follows the arithmetic. With u = 2^-24 and D = head_dim:
///  - a score is D products summed in f32 in any order, scaled queries rounded once more, the
///    maximum subtracted: |error| <= e_s = u ((D + 2) scale sum_i |q_i k_i| + 4 max_t |s_t|)
///  - a weight exp(s - m) has relative error e_p = 2 e_s + 8 u (the maximum carries an error of
///    its own but cancels between numerator and sum; 8 u covers exp2 and its argument)
///  - numerator and sum of T tokens run in f32, over chunks and their join:
///    relative error (T + 16) u of sum_t p_t |v_t|, and of the sum of weights
/// so |error| <= 2 (e_p + (T + 16) u) sum_t p_t |v_t|, p normalised.
AttentionReference attention_reference(std::span<const VisibleKv> kv, std::int32_t queries,
                                       const float* q, std::int64_t q_stride, std::int32_t heads,
                                       float scale, const KvLayout& layout, const float* keys,
                                       const float* values, std::int32_t layer);

}  // namespace coppice::testing

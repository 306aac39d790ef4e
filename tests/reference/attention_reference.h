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

/// Largest error as a multiple of what the arithmetic allows: correct is at most 1, what is no
/// number infinite. `out` as in the reference.
double worst_error(std::span<const float> out, const AttentionReference& reference);

/// What comes first, the scale or the soft cap: planted faults ask for the other order.
enum class ScoreOrder { scale_then_cap, cap_then_scale };

/// For every query q and head h: softmax over the tokens t with q_begin <= q < q_end, and by a
/// window position(t) > positions[q] - window, of cap(scale q k_t), times v_t. Arguments as in
/// Device::tree_attention; `positions` may be empty if the rule has no window.
///
/// The tolerance follows the arithmetic. With u = 2^-24 and D = head_dim:
///  - a score is D products summed in f32 in any order, scaled queries rounded once more, the
///    maximum subtracted: |error| <= e_s = u ((D + 2) scale sum_i |q_i k_i| + 4 max_t |s_t|);
///    the soft cap makes errors smaller, and adds its own, 10 u |s_t|
///  - a weight exp(s - m) has relative error e_p = 2 e_s + 8 u (the maximum carries an error of
///    its own but cancels between numerator and sum; 8 u covers exp2 and its argument)
///  - numerator and sum of T tokens run in f32, over chunks and their join:
///    relative error (T + 16) u of sum_t p_t |v_t|, and of the sum of weights
/// so |error| <= 2 (e_p + (T + 16) u) sum_t p_t |v_t|, p normalised.
AttentionReference attention_reference(std::span<const VisibleKv> kv, std::int32_t queries,
                                       const float* q, std::int64_t q_stride, std::int32_t heads,
                                       const AttentionRule& rule, const KvLayout& layout,
                                       const float* keys, const float* values, std::int32_t layer,
                                       std::span<const std::int32_t> positions = {},
                                       ScoreOrder order = ScoreOrder::scale_then_cap);

}  // namespace coppice::testing

#include "reference/attention_reference.h"

#include <algorithm>
#include <cmath>

namespace coppice::testing {

double worst_error(std::span<const float> out, const AttentionReference& reference) {
  double worst = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double ratio = std::abs(out[i] - reference.out[i]) / reference.tolerance[i];
    if (!(ratio <= worst)) worst = std::isnan(ratio) ? INFINITY : ratio;
  }
  return worst;
}

AttentionReference attention_reference(std::span<const VisibleKv> kv, std::int32_t queries,
                                       const float* q, std::int64_t q_stride, std::int32_t heads,
                                       const AttentionRule& rule, const KvLayout& layout,
                                       const float* keys, const float* values, std::int32_t layer,
                                       std::span<const std::int32_t> positions, ScoreOrder order) {
  const double scale = rule.scale;
  const auto capped = [&](double score) {
    return rule.soft_cap > 0 ? rule.soft_cap * std::tanh(score / rule.soft_cap) : score;
  };
  const std::int64_t dim = layout.head_dim;
  const std::int32_t group = heads / layout.kv_heads;
  const double u = std::ldexp(1.0, -24);
  AttentionReference result;
  result.out.assign(static_cast<std::size_t>(queries * heads * dim), 0.0);
  result.tolerance = result.out;
  const auto row_of = [&](const float* pool, KvSlot slot, std::int32_t kv_head) {
    const std::int64_t page = std::int64_t{layer} * layout.pages + slot / layout.page_size;
    return pool +
           ((page * layout.kv_heads + kv_head) * layout.page_size + slot % layout.page_size) * dim;
  };
  std::vector<double> scores;
  std::vector<KvSlot> slots;
  for (std::int32_t query = 0; query < queries; ++query) {
    slots.clear();
    for (const VisibleKv& token : kv) {
      if (token.slot < 0 || query < token.q_begin || query >= token.q_end) continue;
      if (rule.window > 0 &&
          token.position <= positions[static_cast<std::size_t>(query)] - rule.window) {
        continue;
      }
      slots.push_back(token.slot);
    }
    for (std::int32_t head = 0; head < heads; ++head) {
      const float* q_row = q + query * q_stride + head * dim;
      scores.clear();
      double largest_product = 0, largest_score = 0, maximum = -INFINITY;
      for (const KvSlot slot : slots) {
        const float* key = row_of(keys, slot, head / group);
        double score = 0, product = 0;
        for (std::int64_t i = 0; i < dim; ++i) {
          score += static_cast<double>(q_row[i]) * key[i];
          product += std::abs(static_cast<double>(q_row[i]) * key[i]);
        }
        scores.push_back(order == ScoreOrder::scale_then_cap ? capped(scale * score)
                                                             : scale * capped(score));
        largest_product = std::max(largest_product, std::abs(scale) * product);
        largest_score = std::max(largest_score, std::abs(scores.back()));
        maximum = std::max(maximum, scores.back());
      }
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - maximum);
      const double score_error = u * (static_cast<double>(dim + 2) * largest_product +
                                      (rule.soft_cap > 0 ? 14 : 4) * largest_score);
      const double relative =
          2 * (2 * score_error + 8 * u + static_cast<double>(slots.size() + 16) * u);
      double* out = result.out.data() + (query * heads + head) * dim;
      double* tolerance = result.tolerance.data() + (query * heads + head) * dim;
      for (std::size_t t = 0; t < slots.size(); ++t) {
        const float* value = row_of(values, slots[t], head / group);
        for (std::int64_t i = 0; i < dim; ++i) {
          out[i] += scores[t] / sum * value[i];
          tolerance[i] += relative * scores[t] / sum * std::abs(value[i]);
        }
      }
    }
  }
  return result;
}

}  // namespace coppice::testing

#include "reference/emulated_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace coppice::testing {
namespace {

class Emulation {
 public:
  Emulation(const EmulatedPass& pass, const float* q, std::int64_t q_stride, float scale,
            const KvLayout& layout, const float* keys, const float* values, std::int32_t layer,
            FlattenFault fault)
      : pass_(pass),
        plan_(pass.plan),
        q_(q),
        q_stride_(q_stride),
        scale_(scale),
        layout_(layout),
        keys_(keys),
        values_(values),
        layer_(layer),
        fault_(fault),
        dim_(static_cast<std::size_t>(layout.head_dim)) {
    constexpr double unwritten = std::numeric_limits<double>::quiet_NaN();
    out_.assign(static_cast<std::size_t>(plan_.rows * plan_.heads()) * dim_, unwritten);
    if (plan_.chunks == 1) return;
    const auto partials = static_cast<std::size_t>(pass.partial_capacity);
    partial_out_.assign(partials * dim_, unwritten);
    partial_lse_.assign(partials, unwritten);
  }

  std::vector<double> run() {
    const std::int32_t items = plan_.items() - (fault_ == FlattenFault::last_item_left_out ? 1 : 0);
    for (std::int32_t block = 0; block < pass_.grid; ++block) {
      for (std::int32_t index = block; index < items; index += pass_.grid) {
        run_item(plan_.item(index));
      }
    }
    if (plan_.chunks > 1) join();
    return std::move(out_);
  }

 private:
  bool is(FlattenFault fault) const { return fault_ == fault; }

  VisibleKv token(std::int32_t at) const {
    VisibleKv token = plan_.token(pass_.prefix.data(), pass_.tail.data(), at);
    if (at < plan_.prefix && token.slot < 0 && is(FlattenFault::hole_attended)) token.slot = 0;
    if (at >= plan_.prefix && is(FlattenFault::interval_one_longer)) ++token.q_end;
    if (at >= plan_.prefix && is(FlattenFault::interval_one_later)) ++token.q_begin;
    return token;
  }

  /// The part of a chunk outside of which the queries see nothing.
  IndexRange visible_span(std::int32_t chunk, IndexRange queries) const {
    IndexRange tokens = plan_.tokens_of(chunk);
    if (is(FlattenFault::chunk_one_longer)) {
      tokens.end = std::min(tokens.end + 1, plan_.prefix + plan_.tail);
    }
    const auto unseen = [&](std::int32_t at) {
      return at >= plan_.prefix && queries_that_see(token(at), queries).empty();
    };
    while (!tokens.empty() && unseen(tokens.begin)) ++tokens.begin;
    while (!tokens.empty() && unseen(tokens.end - 1)) --tokens.end;
    if (!tokens.empty() && is(FlattenFault::span_one_short)) --tokens.end;
    return tokens;
  }

  const float* pool_row(const float* pool, KvSlot slot, std::int32_t kv_head) const {
    const std::int64_t page = std::int64_t{layer_} * layout_.pages + slot / layout_.page_size;
    return pool +
           ((page * layout_.kv_heads + kv_head) * layout_.page_size + slot % layout_.page_size) *
               layout_.head_dim;
  }

  void run_item(FlattenItem item) {
    const std::int32_t first = item.row_tile * plan_.tile_rows;
    const std::int32_t count = plan_.tile_rows - (is(FlattenFault::tile_one_row_short) ? 1 : 0);
    const IndexRange queries = plan_.queries_of(first, plan_.tile_rows);
    const IndexRange span = visible_span(item.chunk, queries);
    for (std::int32_t row = first; row < std::min(first + count, plan_.packed_rows()); ++row) {
      const std::int32_t query = plan_.query_of(row);
      const std::int32_t head = is(FlattenFault::heads_not_packed)
                                    ? item.kv_head * plan_.group
                                    : plan_.head_of(item.kv_head, row);
      std::vector<double> sums(dim_, 0.0);
      double maximum = -INFINITY;
      double sum = 0.0;
      for (std::int32_t at = span.begin; at < span.end; ++at) {
        const VisibleKv seen = token(at);
        const IndexRange seen_by = queries_that_see(seen, queries);
        if (query < seen_by.begin || query >= seen_by.end) continue;
        const float* key = pool_row(keys_, seen.slot, item.kv_head);
        const float* value = pool_row(values_, seen.slot, item.kv_head);
        const float* q_row = q_ + query * q_stride_ + std::int64_t{head} * layout_.head_dim;
        double score = 0.0;
        for (std::size_t i = 0; i < dim_; ++i) score += double{q_row[i]} * key[i];
        score *= scale_;
        const double top = std::max(maximum, score);
        const double kept = std::exp(maximum - top);
        const double weight = std::exp(score - top);
        maximum = top;
        sum = sum * kept + weight;
        for (std::size_t i = 0; i < dim_; ++i) sums[i] = sums[i] * kept + weight * value[i];
      }
      store(query, head, item.chunk, maximum, sum, sums);
    }
  }

  void store(std::int32_t query, std::int32_t head, std::int32_t chunk, double maximum, double sum,
             const std::vector<double>& sums) {
    const double inverse = sum == 0.0 ? 0.0 : 1.0 / sum;
    if (plan_.chunks == 1) {
      const auto at = static_cast<std::size_t>(query * plan_.heads() + head) * dim_;
      for (std::size_t i = 0; i < dim_; ++i) out_.at(at + i) = sums[i] * inverse;
      return;
    }
    const auto partial = static_cast<std::size_t>(plan_.partial(query, head, chunk));
    partial_lse_.at(partial) = sum == 0.0 ? -INFINITY : maximum + std::log(sum);
    if (sum == 0.0 && !is(FlattenFault::unseen_partial_joined)) return;
    for (std::size_t i = 0; i < dim_; ++i) {
      partial_out_.at(partial * dim_ + i) = sums[i] * inverse;
    }
  }

  void join() {
    const std::int32_t chunks = plan_.chunks - (is(FlattenFault::last_partial_left_out) ? 1 : 0);
    for (std::int32_t query = 0; query < plan_.rows; ++query) {
      for (std::int32_t head = 0; head < plan_.heads(); ++head) {
        const auto first = static_cast<std::size_t>(plan_.partial(query, head, 0));
        double maximum = -INFINITY;
        for (std::int32_t c = 0; c < chunks; ++c) {
          maximum = std::max(maximum, partial_lse_.at(first + static_cast<std::size_t>(c)));
        }
        std::vector<double> sums(dim_, 0.0);
        double weights = 0.0;
        for (std::int32_t c = 0; c < chunks; ++c) {
          const std::size_t partial = first + static_cast<std::size_t>(c);
          double weight = std::exp(partial_lse_.at(partial) - maximum);
          if (weight != 0.0 && is(FlattenFault::log_sum_exp_left_out)) weight = 1.0;
          if (weight == 0.0 && is(FlattenFault::unseen_partial_joined)) weight = 1.0;
          if (weight == 0.0) continue;
          weights += weight;
          for (std::size_t i = 0; i < dim_; ++i) {
            sums[i] += weight * partial_out_.at(partial * dim_ + i);
          }
        }
        const auto at = static_cast<std::size_t>(query * plan_.heads() + head) * dim_;
        for (std::size_t i = 0; i < dim_; ++i) out_.at(at + i) = sums[i] / weights;
      }
    }
  }

  const EmulatedPass& pass_;
  const FlattenPlan& plan_;
  const float* q_;
  std::int64_t q_stride_;
  double scale_;
  const KvLayout& layout_;
  const float* keys_;
  const float* values_;
  std::int32_t layer_;
  FlattenFault fault_;
  std::size_t dim_;
  std::vector<double> out_, partial_out_, partial_lse_;
};

}  // namespace

std::vector<double> emulate_attention(const EmulatedPass& pass, const float* q,
                                      std::int64_t q_stride, float scale, const KvLayout& layout,
                                      const float* keys, const float* values, std::int32_t layer,
                                      FlattenFault fault) {
  return Emulation(pass, q, q_stride, scale, layout, keys, values, layer, fault).run();
}

}  // namespace coppice::testing

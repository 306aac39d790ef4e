// Attention of one layer on the GPU, with random operands and an oracle in double precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "base/tree_order.h"
#include "cuda/guarded_array.h"
#include "cuda/late_writer.h"
#include "cuda/stored_queries.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/box_order.h"
#include "kernels/random_values.h"
#include "kernels/window.h"
#include "reference/segments.h"

namespace coppice::testing {

struct AttentionCase {
  std::int32_t head_dim = 128, kv_heads = 1, group = 4;
  std::int32_t prefix = 0, rows = 1;
  std::int32_t padded_rows = 0;    ///< 0: up to 3 more than rows
  std::int32_t reach = 1000;       ///< of the random tree: 1 is a chain
  double holes = 0.02;             ///< share of prefix entries without a slot
  bool pages_in_order = false;     ///< only pages are shuffled, not the slots in them
  std::int32_t branch_tokens = 0;  ///< not 0: no tree, but so many tail tokens for each row alone
  std::int32_t texts = 1;          ///< more: each has its share of prefix and rows to itself
  std::int32_t shared = 0;         ///< tokens that several texts have before that
  bool by_boxes = false;           ///< the tail is in box_order.h's order
  std::optional<bool> leaves_out = {};  ///< whether halves leave tiles out, instead of what pays
  std::int32_t page_size = 16;
  std::int32_t value_exponent = 0;  ///< a token's values are times 2^e, e at most this either way
  std::int32_t window = 0;
  float soft_cap = 0.0f;
};

/// One layer's attention with random operands in shuffled slots. All other memory is NaN: slots
/// that nobody sees, those before all rows' windows, the other layers, padding rows, columns of q
/// rows that hold keys and values.
struct AttentionProblem {
  /// NaN, which memory that nobody wrote holds.
  static constexpr std::uint16_t unwritten = 0xffff;

  AttentionCase c;
  AttentionShape shape;
  KvLayout layout;
  std::int32_t layer = 1;
  std::int64_t q_stride;
  AttentionRule rule;
  std::vector<std::int32_t> positions;  ///< of the padded rows
  std::vector<KvSlot> prefix;
  std::vector<VisibleKv> tail;
  std::vector<IndexRange> former;  ///< of the tail: what each text has from before
  std::vector<float> q;
  std::vector<std::uint16_t> keys, values;

  AttentionProblem(AttentionCase of, std::uint32_t seed) : c(of) {
    std::mt19937 random(seed);
    if (c.padded_rows == 0) c.padded_rows = c.rows + static_cast<std::int32_t>(random() % 4);
    shape = {c.kv_heads * c.group, c.kv_heads, c.head_dim};
    q_stride = (shape.heads + 2 * c.kv_heads) * c.head_dim;
    rule = {1.0f / std::sqrt(static_cast<float>(c.head_dim)), c.soft_cap, c.window};
    positions.assign(static_cast<std::size_t>(c.padded_rows), 0);
    const auto put = [&](std::int32_t row, std::int32_t position) {
      return positions[static_cast<std::size_t>(row)] = position;
    };
    const std::int32_t tokens = c.prefix + c.shared + c.rows * std::max(c.branch_tokens, 1);
    layout = {3, c.kv_heads, c.head_dim, c.page_size, tokens / c.page_size + 3};

    std::vector<KvSlot> slots(static_cast<std::size_t>(layout.slots()));
    std::iota(slots.begin(), slots.end(), 0);
    if (c.pages_in_order) {
      std::vector<KvSlot> pages(static_cast<std::size_t>(layout.pages));
      std::iota(pages.begin(), pages.end(), 0);
      std::shuffle(pages.begin(), pages.end(), random);
      for (std::size_t i = 0; i < slots.size(); ++i) {
        const auto place = static_cast<std::int32_t>(i);
        slots[i] =
            pages[i / static_cast<std::size_t>(c.page_size)] * c.page_size + place % c.page_size;
      }
    } else {
      std::shuffle(slots.begin(), slots.end(), random);
    }
    const KvSlot unseen_slot = slots.back();
    std::bernoulli_distribution hole(c.holes);
    for (std::int32_t t = 0; t < c.prefix && c.texts == 1; ++t) {
      prefix.push_back(hole(random) ? no_slot : slots[static_cast<std::size_t>(t)]);
    }
    for (std::int32_t t = 0; t < c.shared; ++t) {
      const auto at = static_cast<std::size_t>(c.prefix + c.rows + t);
      prefix.push_back(hole(random) ? no_slot : slots[at]);
    }
    for (std::int32_t text = 0; text < c.texts && c.texts > 1; ++text) {
      const std::int32_t first = c.rows * text / c.texts, end = c.rows * (text + 1) / c.texts;
      const auto before = static_cast<std::int32_t>(tail.size());
      const std::int32_t begin = c.prefix * text / c.texts, here = c.prefix * (text + 1) / c.texts;
      for (std::int32_t t = begin; t < here; ++t) {
        tail.push_back({hole(random) ? no_slot : slots[static_cast<std::size_t>(t)], first, end,
                        c.shared + t - begin});
      }
      former.push_back({before, static_cast<std::int32_t>(tail.size())});
      const TokenTree tree = random_tree(end - first, c.reach, random);
      TreeOrder order;
      order.assign(tree);
      for (std::int32_t row = 0; row < order.rows(); ++row) {
        const auto at = static_cast<std::size_t>(row);
        const auto node = static_cast<std::size_t>(order.node_of_row[at]);
        tail.push_back({slots[static_cast<std::size_t>(c.prefix + first + row)], first + row,
                        first + row + order.subtree_rows[at],
                        put(first + row, c.shared + here - begin + tree.depth[node])});
      }
    }
    for (std::int32_t t = 0; t < c.rows * c.branch_tokens; ++t) {
      const std::int32_t row = t / c.branch_tokens;
      tail.push_back({slots[static_cast<std::size_t>(c.prefix + t)], row, row + 1,
                      put(row, c.prefix + t % c.branch_tokens)});
    }
    TokenTree tree;
    TreeOrder order;
    if (c.branch_tokens == 0 && c.texts == 1) {
      tree = random_tree(c.rows, c.reach, random);
      order.assign(tree);
    }
    for (std::int32_t row = 0; row < order.rows(); ++row) {
      const auto at = static_cast<std::size_t>(row);
      const auto node = static_cast<std::size_t>(order.node_of_row[at]);
      const std::int32_t position = put(row, c.prefix + tree.depth[node]);
      if (row % 19 == 7) tail.push_back({unseen_slot, row, row, position});
      if (row % 23 == 11) tail.push_back({no_slot, 0, c.rows, position});
      tail.push_back({slots[static_cast<std::size_t>(c.prefix + row)], row,
                      row + order.subtree_rows[at], position});
    }

    q.assign(static_cast<std::size_t>(c.padded_rows * q_stride), NAN);
    const auto query_floats = static_cast<std::size_t>(shape.heads * c.head_dim);
    for (std::int32_t row = 0; row < c.rows; ++row) {
      const auto at = static_cast<std::size_t>(row * q_stride);
      for (std::size_t i = 0; i < query_floats; ++i) q[at + i] = uniform(random, 5.0f);
    }
    const auto pool = static_cast<std::size_t>(std::int64_t{layout.layers} * layout.slots() *
                                               c.kv_heads * c.head_dim);
    keys.assign(pool, unwritten);
    values.assign(pool, unwritten);
    const auto fill = [&](KvSlot slot) {
      const int exponent =
          c.value_exponent == 0
              ? 0
              : static_cast<int>(random() % static_cast<unsigned>(2 * c.value_exponent + 1)) -
                    c.value_exponent;
      for (std::int32_t kv_head = 0; slot >= 0 && kv_head < c.kv_heads; ++kv_head) {
        for (std::size_t i = pool_row(slot, kv_head), n = 0; n < dim(); ++i, ++n) {
          keys[i] = nearest_bf16(uniform(random, 1.0f));
          values[i] = nearest_bf16(std::ldexp(uniform(random, 1.0f), exponent));
        }
      }
    };
    const std::int32_t nearest = *std::min_element(positions.begin(), positions.begin() + c.rows);
    for (const VisibleKv& token : this->tokens()) {
      const bool far = c.window > 0 && window_end(token.position, c.window) <= nearest;
      if (token.q_begin < token.q_end && !far) fill(token.slot);
    }
  }

  static float uniform(std::mt19937& random, float bound) {
    return bound * (static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f);
  }
  std::size_t dim() const { return static_cast<std::size_t>(c.head_dim); }
  /// q as kernels read it; all else is NaN.
  std::vector<float> stored_queries() const {
    std::vector<float> stored(q.size(), NAN);
    for (std::int32_t row = 0; row < c.padded_rows; ++row) {
      for (std::int32_t head = 0; head < shape.heads; ++head) {
        const auto begin = static_cast<std::size_t>(row * q_stride + head * c.head_dim);
        for (std::size_t i = 0; i < dim(); ++i) {
          store_query(stored, begin, i, nearest_bf16(q[begin + i]));
        }
      }
    }
    return stored;
  }
  /// Index of a slot's first element in `keys` and `values`.
  std::size_t pool_row(KvSlot slot, std::int32_t kv_head) const {
    const std::int64_t page = std::int64_t{layer} * layout.pages + slot / c.page_size;
    return static_cast<std::size_t>(
        ((page * c.kv_heads + kv_head) * c.page_size + slot % c.page_size) * c.head_dim);
  }
  /// Prefix and tail as one list.
  std::vector<VisibleKv> tokens() const {
    std::vector<VisibleKv> all;
    for (const KvSlot slot : prefix) {
      all.push_back({slot, 0, c.rows, static_cast<std::int32_t>(all.size())});
    }
    all.insert(all.end(), tail.begin(), tail.end());
    return all;
  }

  struct Plan {
    AttentionLaunch launch;
    cuda::PassScalars scalars;
    std::vector<BlockRange> ranges;
    std::vector<RowTile> row_tiles;
    std::vector<VisibleKv> tail;
  };
  /// Launches may have more blocks than the plan.
  static constexpr std::size_t most_blocks = 256;
  Plan plan(const ResidentBlocks& blocks) const {
    Plan plan;
    plan.ranges.resize(most_blocks);
    plan.row_tiles.resize(cuda::row_tile_capacity(shape, c.padded_rows, blocks) + 1);
    RangePlanner planner;
    // What a text has from before is one segment; all other tokens have one each.
    std::vector<KvSlot> slots;
    for (const VisibleKv& token : tail) slots.push_back(token.slot);
    std::vector<KvSegment> segments;
    auto next = former.begin();
    for (std::size_t at = 0, count = 0; at < tail.size(); at += count) {
      const bool before = next != former.end() && next->begin == static_cast<std::int32_t>(at);
      count = before ? static_cast<std::size_t>(next->end - next->begin) : 1;
      if (before) ++next;
      if (count == 0) continue;
      segments.push_back({std::span<const KvSlot>(slots).subspan(at, count), tail[at].q_begin,
                          tail[at].q_end, before, tail[at].position});
    }
    const std::vector<KvSegment> by_row = segments;
    if (c.by_boxes) order_by_boxes(by_row, segments);
    for (const KvSegment& segment : segments) {
      std::int32_t position = segment.first_position;
      for (const KvSlot slot : segment.slots) {
        plan.tail.push_back({slot, segment.q_begin, segment.q_end, position++});
      }
    }
    segments.push_back({prefix, 0, c.rows, true, 0});
    std::vector<KvSegment> near;
    trim_to_window(segments, positions, c.window, near);
    const auto near_tokens = static_cast<std::int32_t>(near.back().slots.size());
    const std::size_t tail_segments = segments.size() - 1;
    const cuda::WindowedKv kv{near_tokens,
                              static_cast<std::int32_t>(prefix.size()) - near_tokens,
                              near.back().first_position,
                              std::span(segments).first(tail_segments),
                              std::span(near).first(tail_segments),
                              by_row,
                              positions,
                              c.window,
                              c.window > 0 || c.soft_cap > 0};
    plan.launch = cuda::plan_attention(shape, c.rows, c.padded_rows, kv, blocks,
                                       {planner, plan.scalars, plan.ranges, plan.row_tiles});
    if (halves_leave_out(plan.launch.tiles, kv.window_or_cap)) {
      plan.launch.leaves_out = c.leaves_out.value_or(plan.launch.leaves_out);
    }
    return plan;
  }
  PassLimits limits() const {
    return {c.padded_rows, c.padded_rows, static_cast<std::int32_t>(prefix.size() + tail.size()),
            shape};
  }
};

/// [padded rows, heads, head_dim] bf16, and what computed it.
struct AttentionOutputs : std::vector<std::uint16_t> {
  AttentionLaunch launch;
};

/// A problem's operands on the device. Buffers are exactly as large as a run may need.
class DeviceAttention {
 public:
  DeviceAttention(const AttentionProblem& problem, const ResidentBlocks& blocks)
      : problem_(problem),
        blocks_(blocks),
        partials_(partial_capacity(problem.limits(), blocks)),
        scalars_(1),
        ranges_(AttentionProblem::most_blocks),
        row_tiles_(cuda::row_tile_capacity(problem.shape, problem.c.padded_rows, blocks) + 1),
        positions_(problem.positions),
        prefix_(problem.prefix),
        tail_(problem.tail),
        q_(problem.stored_queries()),
        keys_(problem.keys),
        values_(problem.values),
        partial_lse_(
            std::make_unique<GuardedArray<float>>(static_cast<std::size_t>(partials_.lse))),
        partial_out_(std::make_unique<GuardedArray<float>>(static_cast<std::size_t>(partials_.out) *
                                                           problem.dim())),
        tickets_(std::vector<std::uint32_t>(cuda::attention_tickets(blocks), 0)),
        out_(static_cast<std::size_t>(problem.c.padded_rows * problem.shape.heads) *
             problem.dim()) {
    const AttentionProblem::Plan plan = problem.plan(blocks);
    set_plan(plan);
    set_tail(plan.tail);
  }

  void set_plan(const AttentionProblem::Plan& plan) {
    launch_ = plan.launch;
    scalars_.upload(std::vector<cuda::PassScalars>{plan.scalars});
    ranges_.upload(plan.ranges);
    row_tiles_.upload(plan.row_tiles);
  }
  void set_rule(const AttentionRule& rule) { rule_ = rule; }
  void set_positions(const std::vector<std::int32_t>& positions) { positions_.upload(positions); }
  void set_tail(const std::vector<VisibleKv>& tail) { tail_.upload(tail); }

  void poison_results() {
    partial_lse_->poison();
    partial_out_->poison();
    out_.poison();
  }
  /// `grid`: blocks of the launch.
  void queue(const ResidentBlocks& grid, cudaStream_t stream) {
    cuda::PassView view{};
    view.scalars = scalars_.data();
    view.ranges = ranges_.data();
    view.row_tiles = row_tiles_.data();
    view.positions = positions_.data();
    view.prefix_slots = prefix_.data();
    view.tail = tail_.data();
    cuda::tree_attention(
        launch_, view, problem_.c.padded_rows, q_.data(), problem_.q_stride, problem_.shape, rule_,
        problem_.layout, keys_.data(), values_.data(), problem_.layer, out_.data(),
        {partial_out_->data(), partial_lse_->data(), tickets_.data()}, grid, stream);
  }
  /// Waits; empty where memory beside the results was written, or counters are not back at 0.
  AttentionOutputs result() const {
    const AttentionOutputs out{out_.download(), launch_};
    const bool intact = out_.guards_intact() && partial_lse_->guards_intact() &&
                        partial_out_->guards_intact() && tickets_.guards_intact();
    const std::vector<std::uint32_t> tickets = tickets_.download();
    const bool reset = std::all_of(tickets.begin(), tickets.end(), [](auto n) { return n == 0; });
    return intact && reset ? out : AttentionOutputs{};
  }
  /// With queries and the tail's keys and values written only while the launch may have begun:
  /// by a kernel of `before`, which the launch follows where it is the same stream.
  AttentionOutputs run_after_late_writes(cudaStream_t before, cudaStream_t stream) {
    std::vector<std::uint16_t> early_keys = problem_.keys, early_values = problem_.values;
    for (const VisibleKv& token : problem_.tail) {
      for (std::int32_t head = 0; token.slot >= 0 && head < problem_.c.kv_heads; ++head) {
        const auto first = static_cast<std::ptrdiff_t>(problem_.pool_row(token.slot, head));
        for (auto* pool : {&early_keys, &early_values}) {
          std::fill_n(pool->begin() + first, problem_.dim(), AttentionProblem::unwritten);
        }
      }
    }
    const GuardedArray<float> queries(problem_.stored_queries());
    const GuardedArray<std::uint16_t> all_keys(problem_.keys), all_values(problem_.values);
    q_.poison();
    keys_.upload(early_keys);
    values_.upload(early_values);
    poison_results();
    write_late({queries.data(), q_.data(), q_.size() * sizeof(float)},
               {all_keys.data(), keys_.data(), keys_.size() * 2},
               {all_values.data(), values_.data(), values_.size() * 2}, 300.0, before);
    queue(blocks_, stream);
    return result();
  }
  AttentionOutputs run(const ResidentBlocks& grid, cudaStream_t stream) {
    poison_results();
    queue(grid, stream);
    return result();
  }
  AttentionOutputs run(cudaStream_t stream) { return run(blocks_, stream); }

 private:
  const AttentionProblem& problem_;
  ResidentBlocks blocks_;
  AttentionLaunch launch_;
  PartialCapacity partials_;
  GuardedArray<cuda::PassScalars> scalars_;
  GuardedArray<BlockRange> ranges_;
  GuardedArray<RowTile> row_tiles_;
  AttentionRule rule_ = problem_.rule;
  GuardedArray<std::int32_t> positions_;
  GuardedArray<KvSlot> prefix_;
  GuardedArray<VisibleKv> tail_;
  GuardedArray<float> q_;
  GuardedArray<std::uint16_t> keys_, values_;
  std::unique_ptr<GuardedArray<float>> partial_lse_, partial_out_;
  GuardedArray<std::uint32_t> tickets_;
  GuardedArray<std::uint16_t> out_;
};

/// Error of one (query, head) as a multiple of what the arithmetic allows: correct is at most 1.
///
/// The oracle is in double, on q, k and v as rounded to bf16. Products of bf16 are exact in f32.
/// With u = 2^-24, b = 2^-8 (bf16's unit roundoff), tensor cores' sums truncated at 4 u per
/// addition, D = head_dim, T tokens and scores s_t in units of log2:
///  - a score has D additions, a product with the scale and the maximum subtracted:
///    e_s = u (4 D + 2) log2(e) scale max_t sum_i |q_i k_ti| + 4 u max_t |s_t|
///    the soft cap c makes errors smaller, and adds 2^-20 c
///  - a weight has relative error ln(2) 2 e_s (its own score and the maximum, which log-sum-exp
///    carries from chunk to chunk) + 16 u for 2^x, and as factor of v_t another b
///  - sums over T tokens, rescaled with every tile, and their join: 4 (T + 64) u
///  - where ranges of the work share a row, a partial result's elements are rounded to 2^-12 of its
///    largest, which is at most max_i |v_ti| on the average of the weights it has
/// so |error| <= (2 (2 ln(2) e_s + 16 u + 4 (T + 64) u) + b) sum_t p_t |v_t|
///               + 2^-12 sum_t p_t max_i |v_ti|,
/// where numerator and sum of weights share all but b, and the last term is the ranges' alone; the
/// rounding of the output adds b (|out| + that error).
inline double row_error(const AttentionProblem& problem, const std::vector<VisibleKv>& tokens,
                        const AttentionOutputs& out, std::int32_t query, std::int32_t head) {
  const std::int32_t position = problem.positions[static_cast<std::size_t>(query)];
  const double cap = problem.rule.soft_cap;
  const double u = std::ldexp(1.0, -24);
  const double b = std::ldexp(1.0, -8);
  const double log2_e = std::log2(std::exp(1.0));
  const double to_log2 = log2_e * problem.rule.scale;
  const std::size_t dim = problem.dim();
  const std::int32_t kv_head = head / problem.c.group;
  std::vector<double> q_row;
  for (std::size_t i = 0; i < dim; ++i) {
    const auto at = static_cast<std::size_t>(query * problem.q_stride) +
                    static_cast<std::size_t>(head) * dim + i;
    q_row.push_back(widened(nearest_bf16(problem.q[at])));
  }
  std::vector<std::pair<double, std::size_t>> seen;  // score, pool row
  double largest_products = 0, largest_score = 0, maximum = -INFINITY;
  for (const VisibleKv& token : tokens) {
    if (token.slot < 0 || query < token.q_begin || query >= token.q_end) continue;
    if (problem.rule.window > 0 && token.position <= position - problem.rule.window) continue;
    const std::size_t row = problem.pool_row(token.slot, kv_head);
    double score = 0, products = 0;
    for (std::size_t i = 0; i < dim; ++i) {
      const double product = q_row[i] * widened(problem.keys[row + i]);
      score += product;
      products += std::abs(product);
    }
    score *= to_log2;
    if (cap > 0) score = log2_e * cap * std::tanh(score / (log2_e * cap));
    seen.emplace_back(score, row);
    largest_products = std::max(largest_products, std::abs(to_log2) * products);
    largest_score = std::max(largest_score, std::abs(score));
    maximum = std::max(maximum, score);
  }
  double sum = 0, largest_values = 0;
  std::vector<double> expected(dim, 0.0), magnitude(dim, 0.0);
  for (const auto& [score, row] : seen) {
    const double weight = std::exp2(score - maximum);
    sum += weight;
    double largest = 0;
    for (std::size_t i = 0; i < dim; ++i) {
      const double part = weight * widened(problem.values[row + i]);
      expected[i] += part;
      magnitude[i] += std::abs(part);
      largest = std::max(largest, std::abs(part));
    }
    largest_values += largest;
  }
  const double score_error = u * (4.0 * static_cast<double>(dim) + 2) * largest_products +
                             4 * u * largest_score + 16 * u * log2_e * cap;
  const double relative = 2 * (2 * std::log(2.0) * score_error + 16 * u +
                               4 * (static_cast<double>(seen.size()) + 64) * u) +
                          b;
  const double halves = out.launch.takes_ranges() ? std::ldexp(1.0, -12) : 0;
  double worst = 0;
  const std::size_t first = static_cast<std::size_t>(query * problem.shape.heads + head) * dim;
  for (std::size_t i = 0; i < dim; ++i) {
    const double computed = (relative * magnitude[i] + halves * largest_values) / sum;
    const double tolerance = computed + b * (std::abs(expected[i]) / sum + computed);
    const double error = std::abs(widened(out[first + i]) - expected[i] / sum);
    const double ratio = error / tolerance;
    if (!(ratio <= worst)) worst = std::isnan(ratio) ? INFINITY : ratio;
  }
  return worst;
}

/// Largest row_error() over all (query, head), or, where the oracle would take long, over some: at
/// least one for every KV head and 64 packed rows, which blocks compute apart. Written padding,
/// unwritten rows and missing results count as infinite.
inline double worst_error(const AttentionProblem& problem, const AttentionOutputs& out) {
  const std::size_t row_elements = static_cast<std::size_t>(problem.shape.heads) * problem.dim();
  if (out.size() != row_elements * static_cast<std::size_t>(problem.c.padded_rows)) return INFINITY;
  const std::size_t real = row_elements * static_cast<std::size_t>(problem.c.rows);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool right =
        i < real ? std::isfinite(widened(out[i])) : out[i] == AttentionProblem::unwritten;
    if (!right) return INFINITY;
  }
  const std::vector<VisibleKv> tokens = problem.tokens();
  const std::int32_t packed = problem.c.rows * problem.c.group;
  const auto affordable = static_cast<std::int32_t>(4'000'000 / (tokens.size() * problem.dim()));
  const std::int32_t stride =
      std::clamp(packed * problem.c.kv_heads / std::max(affordable, 1), 1, 64);
  double worst = 0;
  std::mt19937 random(static_cast<std::uint32_t>(packed));
  for (std::int32_t kv_head = 0; kv_head < problem.c.kv_heads; ++kv_head) {
    for (std::int32_t first = 0; first < packed; first += stride) {
      const auto choices = static_cast<std::uint32_t>(std::min(stride, packed - first));
      const std::int32_t row = first + static_cast<std::int32_t>(random() % choices);
      worst = std::max(worst, row_error(problem, tokens, out, row / problem.c.group,
                                        kv_head * problem.c.group + row % problem.c.group));
    }
  }
  return worst;
}

}  // namespace coppice::testing

#include "kernels/cpu/attention.h"

#include "base/error.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/workers.h"

namespace coppice::cpu {

struct AttentionEngine::Impl {
  Workers& workers;
  explicit Impl(Workers& w) : workers(w) {}
  DeviceBuffer partials;  ///< outputs, then maxima, then sums
  DeviceBuffer scratch;   ///< a part per worker
  std::vector<AttentionItem> items;
  struct Joined {
    std::int32_t q_begin, q_end, shift;
  };
  std::vector<Joined> joined;  ///< queries whose chunks are several items' work

  static float* at_least(DeviceBuffer& buffer, std::int64_t floats, const char* purpose) {
    const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
    if (buffer.bytes() < bytes) {
      buffer = DeviceBuffer();
      buffer = allocate(bytes + bytes / 2, purpose);
    }
    return buffer.as<float>();
  }
  std::int64_t divide(const AttentionPlan& plan, std::int64_t all_work, const KvLayout& layout,
                      std::int32_t heads, int team);
};

// Rows and KV heads are items of their own; chunks are shared out among several where these are too
// few for the team. Returns the partial results that takes.
std::int64_t AttentionEngine::Impl::divide(const AttentionPlan& plan, std::int64_t all_work,
                                           const KvLayout& layout, std::int32_t heads, int team) {
  constexpr std::int64_t most_floats = std::int64_t{1} << 25;  // of partial results, for a text
  const std::int32_t group = heads / layout.kv_heads;
  const auto work_of = [&](const AttentionPlan::Text& text) {
    std::int64_t work = 0;
    for (std::int32_t i = text.chunk_begin; i < text.chunk_end; ++i) {
      const AttentionPlan::Chunk& c = plan.chunks[static_cast<std::size_t>(i)];
      work += std::int64_t{c.kv_end - c.kv_begin} * (c.q_end - c.q_begin);
    }
    return work;
  };
  items.clear();
  joined.clear();
  std::int64_t partials_kept = 0;
  for (const AttentionPlan::Text& text : plan.texts) {
    const std::int32_t rows = (text.q_end - text.q_begin) * group;
    const std::int32_t tiles = (rows + attention_rows - 1) / attention_rows;
    const std::int32_t chunks = text.chunk_end - text.chunk_begin;
    std::int64_t spans = 1;
    std::int32_t first_partial = 0;
    if (chunks > 1 && team > 1 && tiles * layout.kv_heads % team != 0) {
      first_partial = plan.chunks[static_cast<std::size_t>(text.chunk_begin)].partial;
      const AttentionPlan::Chunk& last = plan.chunks[static_cast<std::size_t>(text.chunk_end - 1)];
      const std::int64_t results = last.partial + (last.q_end - last.q_begin) - first_partial;
      // Two items for each worker, to even out.
      const std::int64_t share = std::max<std::int64_t>(all_work * layout.kv_heads / (2 * team), 1);
      spans = std::clamp<std::int64_t>((work_of(text) / tiles + share - 1) / share, 1, chunks);
      if (results * heads * layout.head_dim > most_floats) spans = 1;
      if (spans > 1) {
        joined.push_back(
            {text.q_begin, text.q_end, first_partial - static_cast<std::int32_t>(partials_kept)});
        partials_kept += results;
      }
    }
    for (std::int64_t span = 0; span < spans; ++span) {
      const auto chunk = [&](std::int64_t i) {
        return text.chunk_begin + static_cast<std::int32_t>(chunks * i / spans);
      };
      for (std::int32_t row = 0; row < rows; row += attention_rows) {
        items.push_back({text.q_begin, row, std::min(row + attention_rows, rows), chunk(span),
                         chunk(span + 1), spans == 1, spans == 1 ? 0 : joined.back().shift});
      }
    }
  }
  return partials_kept;
}

AttentionEngine::AttentionEngine(Workers& workers) : impl_(std::make_unique<Impl>(workers)) {}
AttentionEngine::~AttentionEngine() = default;

void AttentionEngine::run(const AttentionPlan& plan, std::span<const std::int32_t> positions,
                          const float* q, std::int64_t q_stride, std::int32_t heads,
                          const AttentionRule& rule, const KvLayout& layout, DType kv_dtype,
                          const void* keys, const void* values, std::int32_t layer, DType out_dtype,
                          void* out) {
  if (plan.queries == 0) return;
  if (layout.head_dim < 1 || layout.kv_heads < 1 || heads < 1 || heads % layout.kv_heads != 0) {
    throw_failure(cat("attention: ", heads, " heads of ", layout.head_dim, " over ",
                      layout.kv_heads, " KV heads; heads must be a multiple of KV heads"));
  }
  if (rule.window < 0 || !(rule.soft_cap >= 0.0f) ||
      (rule.window > 0 && positions.size() != static_cast<std::size_t>(plan.queries))) {
    throw_failure(cat("attention: ", positions.size(), " positions of ", plan.queries,
                      " rows by a window of ", rule.window, " tokens and a soft cap of ",
                      rule.soft_cap));
  }
  const std::int64_t dim = layout.head_dim;
  const std::int64_t layer_bytes = std::int64_t{layout.pages} * layout.kv_heads * layout.page_size *
                                   dim * static_cast<std::int64_t>(size_of(kv_dtype));
  // From here on, asking for rows ahead of their use made 1.1 to 2.2 times the speed where few
  // rows look at much KV; below, up to a quarter less (bench/kernels).
  constexpr std::int64_t far_bytes = std::int64_t{6} << 20;
  const std::int64_t token_bytes = layer_bytes / layout.slots() * layout.layers * 2;
  const bool far = std::ssize(plan.slot) * token_bytes > far_bytes;
  const auto of_layer = [&](const void* pool) {
    return static_cast<const std::byte*>(pool) + layer * layer_bytes;
  };
  std::int64_t work = 0;  // tokens by queries
  std::int32_t longest = 0;
  for (const AttentionPlan::Chunk& c : plan.chunks) {
    work += std::int64_t{c.kv_end - c.kv_begin} * (c.q_end - c.q_begin);
    longest = std::max(longest, c.kv_end - c.kv_begin);
  }
  constexpr std::int64_t grain = 1 << 17;  // a few microseconds, what a team costs
  Workers& workers = impl_->workers;
  const int team = workers.worth(work * 2 * dim * heads, grain);
  const std::int64_t pairs = impl_->divide(plan, work, layout, heads, team) * heads;
  float* partials = Impl::at_least(impl_->partials, pairs * (dim + 2), "attention partials");
  AttentionCall call{&plan,
                     q,
                     q_stride,
                     heads,
                     heads / layout.kv_heads,
                     rule,
                     positions.data(),
                     &layout,
                     of_layer(keys),
                     of_layer(values),
                     kv_dtype,
                     far,
                     out_dtype,
                     out,
                     longest,
                     partials,
                     partials + pairs * dim,
                     partials + pairs * (dim + 1)};
  const std::int64_t share = (attention_scratch_floats(layout.head_dim, longest) + 15) / 16 * 16;
  float* scratch = Impl::at_least(impl_->scratch, share * workers.threads(), "attention scratch");
  const std::vector<AttentionItem>& items = impl_->items;
  workers.run(std::ssize(items) * layout.kv_heads, team, [&](std::int64_t i, int worker) {
    attend(call, items[static_cast<std::size_t>(i % std::ssize(items))],
           static_cast<std::int32_t>(i / std::ssize(items)), scratch + worker * share);
  });
  for (const Impl::Joined& joined : impl_->joined) {
    const std::int64_t rows = joined.q_end - joined.q_begin;
    workers.run_rows(rows, std::ssize(plan.chunks) * heads * dim, 1 << 14,
                     [&](std::int64_t begin, std::int64_t end) {
                       join_partials(call, joined.q_begin + static_cast<std::int32_t>(begin),
                                     joined.q_begin + static_cast<std::int32_t>(end), joined.shift);
                     });
  }
}

}  // namespace coppice::cpu
